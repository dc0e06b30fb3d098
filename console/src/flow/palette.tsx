// Beside and below the canvas: what can be added, what is there, and what the check found.
import { KINDS } from '../words'
import { Button, Findings as Found, Section } from '../ui'
import { words, type Finding } from './form'
import { TRIGGER, type Kinds } from './kinds'
import type { Card, Exit } from './model'

/** `spot`: the port behind which something is added, if one was chosen. */
export function Palette({
  all,
  cards,
  card,
  spot,
  free,
  locked,
  marks,
  add,
  addTrigger,
  focus,
}: {
  all: Kinds
  cards: readonly Card[]
  card: Card | null
  spot: Exit | null
  free: boolean
  locked: boolean
  marks: ReadonlyMap<string, readonly Finding[]>
  add: (kind: string) => void
  addTrigger: () => void
  focus: (ids: string[]) => void
}) {
  return (
    <>
      {!locked && (
        <>
          <h2>Add</h2>
          <ul class="plain">
            {[...all.all.values()].map(kind => (
              <li key={kind.name}>
                <Button title={kind.about} onClick={() => add(kind.name)}>
                  {KINDS[kind.name] ?? words(kind.name)}
                </Button>
              </li>
            ))}
            {free && !cards.some(each => each.kind === TRIGGER) && (
              <li>
                <Button onClick={addTrigger}>Trigger</Button>
              </li>
            )}
          </ul>
          <p class="hint">
            {card
              ? `After ${card.kind === TRIGGER ? 'the trigger' : card.id}${spot?.id === card.id ? `, by ${spot.port}` : ''}.`
              : cards.length < 2
                ? 'Click one to start.'
                : free
                  ? 'Select a box to add after it.'
                  : 'At the end; select a box to add after it.'}
          </p>
        </>
      )}
      <h2>In this flow</h2>
      <ul class="plain outline">
        {cards.map(each => (
          <li key={each.id}>
            <Button
              class="plain"
              aria-current={each.id === card?.id ? 'true' : undefined}
              onClick={() => focus([each.id])}
            >
              {each.kind === TRIGGER ? 'Trigger' : each.id}
              {(marks.get(each.id) ?? []).some(one => one.severity === 'error') && (
                <span class="bad" role="img" aria-label="has errors">
                  {' '}
                  ✕
                </span>
              )}
            </Button>
          </li>
        ))}
      </ul>
    </>
  )
}

const MOST = 50 // findings that are listed

/** `isNew`: it is what was found of the flow as it stands here. */
export function Findings({
  of: { findings, problem },
  isNew,
  locate,
  focus,
}: {
  of: { findings: readonly Finding[]; problem: Error | null }
  isNew: boolean
  locate: (at: string) => Card | undefined
  focus: (ids: string[]) => void
}) {
  return (
    <Section title="Findings">
      {problem && <p class="soft">Not checked: {problem.message}</p>}
      {findings.length ? (
        <>
          <Found
            of={findings.slice(0, MOST)}
            at={({ pointer }) => {
              const about = locate(pointer)
              return about ? (
                <>
                  <Button class="plain" onClick={() => focus([about.id])}>
                    {about.kind === TRIGGER ? 'the trigger' : about.id}
                  </Button>
                  :
                </>
              ) : (
                <code>{pointer}</code>
              )
            }}
          />
          {findings.length > MOST && <p class="soft">and {findings.length - MOST} more</p>}
        </>
      ) : (
        !problem && <p class="empty">{isNew ? 'No findings: the flow can be activated.' : 'Checking…'}</p>
      )}
    </Section>
  )
}
