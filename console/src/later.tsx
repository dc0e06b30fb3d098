// Screens in chunks of their own: shown once their chunk is there.
import { useLoaded } from './data'
import { Refusal } from './session'
import { Shown } from './ui'

/** Segments, broadcasts and topics. */
export const reaching = () => import('./audience/screens')
export const explaining = () => import('./screens/why')

/** Of a version before, most likely. */
function gone(): never {
  throw new Refusal(0, 'gone', 'This part of the page could not be loaded. Reload the page; what you typed is kept.')
}

export function Later<T>({ load, show }: { load: () => Promise<T>; show: (module: T) => preact.JSX.Element }) {
  const module = useLoaded(() => load().catch(gone), [load])
  return module.value ? show(module.value) : <Shown of={module}>{() => null}</Shown>
}
