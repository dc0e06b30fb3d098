// What somebody changed meanwhile in a flow, or in what a form shows.
import type { ComponentChildren } from 'preact'
import { useLoaded, type Held } from '../data'
import { same } from '../exact'
import { Button, Shown, When } from '../ui'
import { DifferenceShown, Members } from './difference'
import { kinds, type Kinds } from './kinds'
import { difference, docOf, type Doc } from './model'

type Definition = Parameters<typeof docOf>[0]

/** On a page that does not edit it. */
export function Changed({ before, after }: { before: Definition; after: Definition }) {
  const all = useLoaded(kinds, [])
  return <Shown of={all}>{known => <DifferenceShown of={difference(docOf(before), docOf(after), known)} />}</Shown>
}

interface Ways {
  keep: () => void
  take: () => void
}

/** Two changes of the same, and the two ways out. */
function Both({
  when,
  theirs,
  mine,
  keep,
  take,
}: Ways & { when: ComponentChildren; theirs: ComponentChildren; mine: ComponentChildren }) {
  return (
    <div class="note" role="alert">
      <h2>Changed by someone else</h2>
      <p>Someone saved this {when}. Nothing is lost: yours is still here, theirs is saved.</p>
      <h3>Their changes</h3>
      {theirs}
      <h3>Your changes to theirs</h3>
      {mine}
      <p class="buttons">
        <Button onClick={keep}>Keep mine</Button>
        <Button onClick={take}>Use theirs</Button>
      </p>
    </div>
  )
}

/** In the editor, which has what is drawn here. */
export function Conflict({
  mine,
  base,
  theirs,
  at,
  all,
  ...ways
}: Ways & { mine: Doc; base: Doc; theirs: Doc; at: string; all: Kinds }) {
  return (
    <Both
      when={
        <>
          flow at <When at={at} />, after you opened it
        </>
      }
      {...ways}
      theirs={<DifferenceShown of={difference(base, theirs, all)} />}
      mine={<DifferenceShown of={difference(theirs, mine, all)} />}
    />
  )
}

type Values = Record<string, unknown>
const pairs = (before: Values, after: Values) =>
  Object.fromEntries(
    Object.keys(after)
      .filter(name => !same(before[name], after[name]))
      .map(name => [name, [before[name], after[name]]]),
  )

/** Above a form, of what was typed into it. */
export function Clash({ mine, base, theirs, ...ways }: Ways & NonNullable<Held['clash']>) {
  const pair = (before: object, after: object) => <Members of={pairs(before as Values, after as Values)} />
  return (
    <Both when="after you had begun to change it" {...ways} theirs={pair(base, theirs)} mine={pair(theirs, mine)} />
  )
}
