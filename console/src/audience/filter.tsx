// A filter as a form or as JSON, and whom it finds while one types.
import { useState } from 'preact/hooks'
import { api, got, type Schemas } from '../api'
import { useTyped } from '../data'
import { First, unplaced } from '../errors'
import { objectOf, pretty, tried } from '../exact'
import { called, Names, useTopics, useUsed } from '../names'
import type { Refusal } from '../session'
import { Findings, JsonText, Link, Refused, Rows, Section, Views, Zones, plural } from '../ui'
import { Condition, isShown } from '../flow/conditions'
import { Compare, questions } from './questions'

export const BLANK = pretty({ all: [{ path: 'contact.tags', op: 'contains', value: '' }] })
const AT = '/filter'

/** Throws a Refusal that says where it stops being one. */
export const filterOf = (text: string) => objectOf(text, AT) as Schemas['SegmentFilter']

/** Null for what the form cannot show. */
const readable = (text: string) =>
  tried(() => {
    const filter = filterOf(text)
    return isShown(filter) ? filter : null
  }, null)

/** `problem` is what the preview says, which goes before what the last save did. */
export function FilterField({
  text,
  set,
  problem,
  own,
}: {
  text: string
  set: (text: string) => void
  problem: Refusal | null
  own?: string
}) {
  const filter = readable(text)
  const [view, setView] = useState<'form' | 'json'>(filter ? 'form' : 'json')
  const topics = useTopics(),
    used = useUsed()
  return (
    <First problem={problem}>
      <fieldset class="group">
        <legend>Who is in it</legend>
        <Views
          label="Show the filter as"
          of={{ form: 'Form', json: 'JSON' }}
          value={view}
          set={setView}
          disabled={!filter && 'form'}
        />
        {view === 'form' && filter ? (
          <>
            <Condition
              place={['filter']}
              value={filter}
              set={next => set(pretty(next))}
              of={{ compare: asked => <Compare {...asked} topics={topics} used={used} />, questions: questions(own) }}
            />
            <Names of={used} />
            <Zones />
          </>
        ) : (
          <JsonText label="Filter (JSON)" rows={14} value={text} set={set} pointer={AT} />
        )}
      </fieldset>
    </First>
  )
}

type Found = Schemas['FilterPreviewed']
type Counts = Found['reachable'][string]
const HELD: readonly (readonly [keyof Counts, string])[] = [
  ['reachable', 'reachable'],
  ['noAddress', 'no address'],
  ['complained', 'complained'],
  ['bounced', 'bounced'],
  ['unsubscribed', 'unsubscribed'],
]

/** What the filter finds, shortly after the last key; of one that says nothing yet it is not asked. */
export function useFound(text: string, contactId: string | null) {
  const isBlank = text === BLANK && !contactId
  const { value, problem } = useTyped(
    async () => (isBlank ? null : got(api.POST('/segments/preview', { body: { filter: filterOf(text), contactId } }))),
    [text, contactId],
  )
  return { found: problem ? null : value, problem, isBlank }
}

export function FoundShown({ found, problem, isBlank }: ReturnType<typeof useFound>) {
  if (isBlank) return <p class="empty">They appear once the rule says who is in it.</p>
  if (!found)
    return problem ? (
      <Refused problem={problem} rest={unplaced(problem.errors, [AT, '/contactId'])} />
    ) : (
      <p class="soft" role="status">
        Loading…
      </p>
    )
  return (
    <>
      <p class="prose">{found.prose}</p>
      <div role="status">
        <Findings of={found.findings} />
        <p class="verdict">
          {plural(found.count, 'contact')}
          {!found.isComplete && ', of the newest: there was no time to look through all'}
        </p>
      </div>
      <Rows
        caption="Reachable contacts, by channel"
        of={Object.entries(found.reachable)}
        id={([channel]) => channel}
        columns={[
          ['Channel', ([channel]) => channel],
          ...HELD.map(([key, name]) => [name, ([, counts]: [string, Counts]) => counts[key].toLocaleString()] as const),
        ]}
      />
      {found.sample.length > 0 && (
        <Section title="Newest">
          <ul class="plain">
            {found.sample.map(each => (
              <li key={each.id}>
                <Link to={`/contacts/${each.id}`}>{called(each)}</Link>
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  )
}
