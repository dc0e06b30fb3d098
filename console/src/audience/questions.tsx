// The questions that a filter asks beside comparisons: what a contact did, got and went through, and other segments.
import type { Listed } from '../data'
import { options, useBroadcasts, useFlowChoice, useSegments, useTemplates } from '../names'
import { Field } from '../ui'
import { Condition } from '../flow/conditions'
import type { Asked, Question } from '../flow/form'
import { pointer, type Json } from '../flow/model'

type Options = readonly (readonly [string, string])[]
const COUNTS: Options = [['gte', 'at least'], ['eq', 'exactly'], ['gt', 'more than'], ['lte', 'at most'], ['lt', 'less than']]
const AGES = 'Such as P30D for 30 days. Empty: ever.'

/** A member of the question, with what is wrong at it. Empty: left out. */
function Member({ of, name, label, options, hint, keep = false }: { of: Asked; name: string; label: string; options?: Options; hint?: string; keep?: boolean }) {
  const { place, set } = of
  const { [name]: now, ...rest } = of.value as Json
  return <Field label={label} value={String(now ?? '')} set={text => set(text || keep ? { ...rest, [name]: text } : rest)} pointer={pointer([...place, name])} hint={hint} {...(options ? { options } : {})} />
}

function Did(asked: Asked) {
  const question = asked.value as Json
  const count = (question.count ?? { op: 'gte', value: 1 }) as { op: string; value: unknown }
  const change = (changes: object) => asked.set({ ...question, count: { ...count, ...changes } })
  const { match, ...without } = question
  return <>
    <Member of={asked} name="event" label="Event name" keep />
    <div class="columns">
      <Field label="How often" value={count.op} set={op => change({ op })} options={COUNTS} pointer={pointer([...asked.place, 'count', 'op'])} />
      <Field label="Times" type="number" min="0" value={String(count.value)} set={text => change({ value: text === '' ? '' : Number(text) })} pointer={pointer([...asked.place, 'count', 'value'])} hint="0: never." />
      <Member of={asked} name="within" label="In the last" hint={AGES} />
    </div>
    {match === undefined ? <p class="buttons"><button type="button" class="small" onClick={() => asked.set({ ...question, match: { path: '', op: 'eq', value: '' } })}>Filter these events…</button></p>
      : <fieldset class="group"><legend>Only events that match</legend>
        <Condition place={[...asked.place, 'match']} value={match} set={next => asked.set({ ...question, match: next })} of={{ paths: 'event.properties.total' }} />
        <p class="buttons"><button type="button" class="small" onClick={() => asked.set(without)}>Remove event filter</button></p>
      </fieldset>}
  </>
}

type Named = { id: string; name: string }

/** A member that names one of our records. `own` is not offered: what asks is no part of its own answer. */
function Chosen({ of, name, label, none, all, keep = false, own }: { of: Asked; name: string; label: string; none: string; all: (chosen: string) => Listed<Named>; keep?: boolean; own?: string | undefined }) {
  const { [name]: now, ...rest } = of.value as Json
  const list = all(String(now ?? ''))
  return <Field label={label} value={String(now ?? '')} set={id => of.set(id || keep ? { ...rest, [name]: id } : rest)} pointer={pointer([...of.place, name])}
    growing={list} options={[['', none], ...options(list).filter(([id]) => id !== own)]} />
}

/** By the member that only the question has, as the form of a condition finds it. */
export const questions = (own?: string): { [name: string]: Question } => ({
  event: { name: 'an event happened', blank: { event: '' }, show: asked => <Did {...asked} /> },
  message: { name: 'a message was sent', blank: { message: 'sent' }, show: asked => <>
    <Member of={asked} name="message" label="The message" options={[['sent', 'was sent and did not bounce'], ['bounced', 'bounced']]} />
    <Chosen of={asked} name="templateId" label="Template" none="any" all={useTemplates} />
    <Chosen of={asked} name="broadcastId" label="Broadcast" none="any, or none" all={useBroadcasts} />
    <Member of={asked} name="within" label="In the last" hint={AGES} />
  </> },
  run: { name: 'the contact is in a flow', blank: { run: 'in', definitionId: '' }, show: asked => <>
    <Member of={asked} name="run" label="The contact" options={[['in', 'is in it now'], ['completed', 'completed it'], ['entered', 'ever entered it']]} />
    <Chosen of={asked} name="definitionId" label="Flow" none="choose one" all={useFlowChoice} keep />
  </> },
  segmentId: { name: 'the contact is in a segment', blank: { segmentId: '' }, show: asked => <Chosen of={asked} name="segmentId" label="Segment" none="choose one" all={useSegments} keep own={own} /> },
})
