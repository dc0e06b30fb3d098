// The questions that a filter asks: what is known of a contact, what they did, got and went through, and other segments.
import { useState } from 'preact/hooks'
import type { Schemas } from '../api'
import type { Listed } from '../data'
import { tried } from '../exact'
import { Length } from '../lengths'
import {
  EVENTS,
  FIELDS,
  options,
  TAGS,
  useBroadcasts,
  useFlowChoice,
  useSegments,
  useTemplates,
  type Used,
} from '../names'
import { Button, Field, step, ZONES } from '../ui'
import { CHANNELS } from '../words'
import { COMPARISON, Comparison, Condition, fit, type Compared } from '../flow/conditions'
import { shown, textOf, type Asked, type Question } from '../flow/form'
import { pointer, type Json } from '../flow/model'

type Options = readonly (readonly [string, string])[]
const COUNTS: Options = [
  ['gte', 'at least'],
  ['eq', 'exactly'],
  ['gt', 'more than'],
  ['lte', 'at most'],
  ['lt', 'less than'],
]

const OF_TEXT = ['eq', 'ne', 'in', 'contains', 'starts_with', 'ends_with', 'exists'],
  OF_STATES = ['eq', 'ne', 'in', 'exists'],
  OF_NUMBERS = [...OF_STATES, 'gt', 'gte', 'lt', 'lte'],
  OF_TIMES = ['before', 'after', 'within_last']
const STATES: Options = [
  ['subscribed', 'subscribed'],
  ['unsubscribed', 'unsubscribed'],
  ['bounced', 'bounced'],
  ['complained', 'complained'],
]
const ANSWERS: Options = [
  ['subscribed', 'subscribed'],
  ['pending', 'asked to confirm'],
  ['unsubscribed', 'unsubscribed'],
]
type Known = Compared & { name: string }
const text = (name: string, list?: string): Known => ({ name, operators: OF_TEXT, isText: true, list })
/** What every contact may have, by its path. */
const KNOWN: Record<string, Known> = {
  'contact.tags': { ...text('Tags', TAGS), operators: ['contains'] },
  'contact.email': text('Email'),
  'contact.phone': text('Phone'),
  'contact.firstName': text('First name'),
  'contact.lastName': text('Last name'),
  'contact.locale': text('Language'),
  'contact.timezone': text('Time zone', ZONES),
  'contact.createdAt': { name: 'Created', operators: OF_TIMES },
  ...Object.fromEntries(
    Object.entries(CHANNELS).map(
      ([channel, name]) =>
        [
          `contact.subscriptions.${channel}`,
          { name: `Subscription: ${name}`, operators: OF_STATES, values: STATES },
        ] as const,
    ),
  ),
}
const OWN = 'contact.metadata'

/** The name of a custom field in its path; null for a path of something else. */
export function ownName(path: string): string | null {
  const [, plain, quoted] = /^contact\.metadata(?:\.([^.[\]]*)|\[(".*")\])$/s.exec(path) ?? []
  return plain ?? (quoted ? tried(() => JSON.parse(quoted) as string, null) : null)
}

const OF_TYPE: Record<string, Compared> = {
  string: { isText: true },
  number: { operators: OF_NUMBERS },
  boolean: {
    operators: ['eq', 'ne', 'exists'],
    values: [
      ['true', 'yes'],
      ['false', 'no'],
    ],
  },
}
/** How a custom field is compared whose values are of these types: of several, as anything. */
export const comparedAs = (types: readonly string[] = []): Compared => (types.length === 1 ? OF_TYPE[types[0]!]! : {})

/** The same comparison of another field, as that one is compared; its value is kept if it `isAlike`. */
export function refitted(comparison: Json, path: string, to: Compared | undefined, isAlike: boolean): Json {
  const op = textOf(comparison.op),
    fits = to?.operators ?? [op],
    by = fits.includes(op) ? op : fits[0]!
  return { path, op: by, value: fit(by, op === 'exists' || isAlike ? comparison : {}, to) }
}

/** By path, what a contact may have answered about each topic. */
export const answered = (topics: readonly Schemas['TopicShape'][]): Record<string, Known> =>
  Object.fromEntries(
    topics.flatMap(({ id, name, channels }) =>
      channels.map(
        channel =>
          [
            `contact.topics.${id}.${channel}`,
            { name: `Topic ${name}: ${CHANNELS[channel]}`, operators: OF_STATES, values: ANSWERS },
          ] as const,
      ),
    ),
  )

/** A comparison of what is chosen by its name; what has none is called by its path, as programs write it. */
export function Compare({
  place,
  value,
  set,
  topics,
  used,
}: Pick<Asked, 'place' | 'value' | 'set'> & { topics: Listed<Schemas['TopicShape']>; used: Used }) {
  const comparison = value as Json,
    path = textOf(comparison.path),
    at = pointer([...place, 'path'])
  const known = { ...KNOWN, ...answered(topics.rows ?? []) }
  const [isTyped, setTyped] = useState(false) // while a path is, it may be that of something else on the way
  const own = isTyped ? null : ownName(path),
    isOther = isTyped || (own === null && path !== '' && !(path in known))
  /** A state is none of another field. */
  const choose = (next: string) =>
    set(refitted(comparison, next, known[next], known[next]?.values === known[path]?.values))
  const typesOf = (name: string) => comparedAs(used.fields.find(each => each.name === name)?.types)
  const rename = (name: string) => {
    const to = typesOf(name)
    set(
      refitted(
        comparison,
        name ? step(OWN, name) : `${OWN}.`,
        to,
        !to.values || to.values.some(([each]) => each === shown(comparison.value)),
      ),
    )
  }
  return (
    <>
      <Field
        label="Field"
        value={own !== null ? `${OWN}.` : isOther ? 'contact.' : path}
        set={choose}
        growing={topics}
        {...(own === null && !isOther ? { pointer: at } : {})}
        options={[
          ['', '–'],
          ...Object.entries(known).map(([key, { name }]) => [key, name] as const),
          [`${OWN}.`, 'a custom field'],
          ['contact.', 'another, by its path'],
        ]}
      />
      {own !== null && (
        <Field label="Field name" value={own} set={rename} pointer={at} list={FIELDS} placeholder="plan" />
      )}
      {isOther && (
        <div onFocusIn={() => setTyped(true)} onFocusOut={() => setTyped(false)}>
          <Field
            label="Path"
            value={path}
            set={next => set({ ...comparison, path: next })}
            pointer={at}
            placeholder="contact.id"
          />
        </div>
      )}
      <Comparison
        place={place}
        value={comparison}
        set={set}
        {...(own !== null ? typesOf(own) : isTyped ? {} : known[path])}
      />
    </>
  )
}

/** A member of the question, with what is wrong at it. Empty: left out. */
function Member({
  of,
  name,
  label,
  options,
  list,
  hint,
  keep = false,
  as: Control = Field,
}: {
  of: Asked
  name: string
  label: string
  options?: Options
  list?: string
  hint?: string
  keep?: boolean
  as?: typeof Length
}) {
  const { place, set } = of,
    { [name]: now, ...rest } = of.value as Json
  return (
    <Control
      label={label}
      value={textOf(now ?? '')}
      set={text => set(text || keep ? { ...rest, [name]: text } : rest)}
      pointer={pointer([...place, name])}
      hint={hint}
      list={list}
      {...(options ? { options } : {})}
    />
  )
}
const Lately = ({ of }: { of: Asked }) => (
  <Member of={of} name="within" label="In the last" hint="Empty: ever." as={Length} />
)

function Did(asked: Asked) {
  const question = asked.value as Json,
    { match, ...without } = question,
    count = (question.count ?? { op: 'gte', value: 1 }) as Json
  const change = (changes: object) => asked.set({ ...question, count: { ...count, ...changes } })
  return (
    <>
      <Member of={asked} name="event" label="Event name" list={EVENTS} keep />
      <div class="columns">
        <Field
          label="How often"
          value={textOf(count.op)}
          set={op => change({ op })}
          options={COUNTS}
          pointer={pointer([...asked.place, 'count', 'op'])}
        />
        <Field
          label="Times"
          type="number"
          min="0"
          value={textOf(count.value)}
          set={text => change({ value: text === '' ? '' : Number(text) })}
          pointer={pointer([...asked.place, 'count', 'value'])}
          hint="0: never."
        />
        <Lately of={asked} />
      </div>
      {match === undefined ? (
        <p class="buttons">
          <Button small onClick={() => asked.set({ ...question, match: COMPARISON })}>
            Filter these events…
          </Button>
        </p>
      ) : (
        <fieldset class="group">
          <legend>Only events that match</legend>
          <Condition
            place={[...asked.place, 'match']}
            value={match}
            set={next => asked.set({ ...question, match: next })}
            of={{ paths: 'event.properties.total' }}
          />
          <p class="buttons">
            <Button small onClick={() => asked.set(without)}>
              Remove event filter
            </Button>
          </p>
        </fieldset>
      )}
    </>
  )
}

type Named = { id: string; name: string }

/** A member that names one of our records. `own` is not offered: what asks is no part of its own answer. */
function Chosen({
  of,
  name,
  label,
  none,
  all,
  keep = false,
  own,
}: {
  of: Asked
  name: string
  label: string
  none: string
  all: (chosen: string) => Listed<Named>
  keep?: boolean
  own?: string | undefined
}) {
  const { [name]: now, ...rest } = of.value as Json
  const chosen = textOf(now ?? ''),
    list = all(chosen)
  return (
    <Field
      label={label}
      value={chosen}
      set={id => of.set(id || keep ? { ...rest, [name]: id } : rest)}
      pointer={pointer([...of.place, name])}
      growing={list}
      options={[['', none], ...options(list).filter(([id]) => id !== own)]}
    />
  )
}

/** By the member that only the question has, as the form of a condition finds it. */
export const questions = (own?: string): { [name: string]: Question } => ({
  event: { name: 'an event happened', blank: { event: '' }, show: asked => <Did {...asked} /> },
  message: {
    name: 'a message was sent',
    blank: { message: 'sent' },
    show: asked => (
      <>
        <Member
          of={asked}
          name="message"
          label="The message"
          options={[
            ['sent', 'was sent and did not bounce'],
            ['bounced', 'bounced'],
          ]}
        />
        <Chosen of={asked} name="templateId" label="Template" none="any" all={useTemplates} />
        <Chosen of={asked} name="broadcastId" label="Broadcast" none="any, or none" all={useBroadcasts} />
        <Lately of={asked} />
      </>
    ),
  },
  run: {
    name: 'the contact is in a flow',
    blank: { run: 'in', definitionId: '' },
    show: asked => (
      <>
        <Member
          of={asked}
          name="run"
          label="The contact"
          options={[
            ['in', 'is in it now'],
            ['completed', 'completed it'],
            ['entered', 'ever entered it'],
          ]}
        />
        <Chosen of={asked} name="definitionId" label="Flow" none="choose one" all={useFlowChoice} keep />
      </>
    ),
  },
  segmentId: {
    name: 'the contact is in a segment',
    blank: { segmentId: '' },
    show: asked => (
      <Chosen of={asked} name="segmentId" label="Segment" none="choose one" all={useSegments} keep own={own} />
    ),
  },
})
