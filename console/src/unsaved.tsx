// A form that changes what is stored, and what stands above it meanwhile.
import type { ComponentChildren } from 'preact'
import { settled } from './api'
import { useDraft, type Edited, type Held } from './data'
import { same } from './exact'
import { Later } from './later'
import { Button, Confirm, Form } from './ui'

const comparing = () => import('./flow/changed')

export function Unsaved({ of, label = 'Discard changes' }: { of: Held; label?: string }) {
  const { clash, goOn, forget } = of
  if (clash) return <Later load={comparing} show={({ Clash }) => <Clash {...clash} keep={goOn} take={forget} />} />
  if (!of.isTyped) return null
  return (
    <p class="note" role="status">
      You have unsaved changes.{' '}
      <Confirm look="small" label={label} title={`${label}?`} act={async () => forget()}>
        <p>What you typed here and did not save is lost.</p>
      </Confirm>
    </p>
  )
}

/** What is typed is kept under this name, and what nobody has seen is not overwritten; it is saved when it `stands` there. */
export function Change<Stored, Draft extends object>({
  name,
  of: { stored, tag, again },
  drafted,
  stands = (now, draft) => same(drafted(now), draft),
  save,
  done,
  children,
}: {
  name: string
  of: Edited<Stored>
  drafted: (stored: Stored) => Draft
  stands?: (now: Stored, draft: Draft) => boolean
  save: (draft: Draft, under: { 'If-Match': string }) => Promise<unknown>
  done: () => unknown
  children: (draft: Draft, change: (changes: Partial<Draft>) => void) => ComponentChildren
}) {
  const [draft, change, forget, held] = useDraft(name, drafted(stored), tag)
  return (
    <>
      <Unsaved of={held} />
      <Form
        label="Save"
        extra={
          <Button
            onClick={() => {
              forget()
              void done()
            }}
          >
            Cancel
          </Button>
        }
        submit={async () => {
          await settled(save(draft, { 'If-Match': held.tag }), async () => stands(await again(), draft))
          if (forget(draft)) await done()
          else await again()
        }}
      >
        {children(draft, change)}
      </Form>
    </>
  )
}
