// Above a form: that it shows what was typed and not what is stored, or that somebody else changed the same meanwhile.
import type { Held } from './data'
import { Later } from './later'
import { Confirm } from './ui'

const comparing = () => import('./flow/changed')

export function Unsaved({ of, label = 'Discard changes' }: { of: Held; label?: string }) {
  const { clash, goOn, forget } = of
  if (clash) return <Later load={comparing} show={({ Clash }) => <Clash {...clash} keep={goOn} take={forget} />} />
  if (!of.isKept) return null
  return (
    <p class="note" role="status">
      You have unsaved changes.{' '}
      <Confirm look="small" label={label} title={`${label}?`} act={async () => forget()}>
        <p>What you typed here and did not save is lost.</p>
      </Confirm>
    </p>
  )
}
