// Above a form: that it shows what was typed and not what is stored, or that somebody else changed the same meanwhile.
import type { Held } from './data'
import { Later } from './later'

const comparing = () => import('./flow/changed')

export function Unsaved({ of, label = 'Discard changes' }: { of: Held; label?: string }) {
  const { clash, goOn, forget } = of
  if (clash) return <Later load={comparing} show={({ Clash }) => <Clash {...clash} keep={goOn} take={forget} />} />
  return of.isKept ? <p class="note" role="status">You have unsaved changes. <button type="button" class="small" onClick={forget}>{label}</button></p> : null
}
