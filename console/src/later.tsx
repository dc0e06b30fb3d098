// Screens in chunks of their own: shown once their chunk is there.
import { useLoaded } from './data'
import { Shown } from './ui'

/** Segments, broadcasts and topics. */
export const reaching = () => import('./audience/screens')
export const explaining = () => import('./screens/why')

export function Later<T>({ load, show }: { load: () => Promise<T>; show: (module: T) => preact.JSX.Element }) {
  const module = useLoaded(load, [load])
  return module.value ? show(module.value) : <Shown of={module}>{() => null}</Shown>
}
