// What somebody changed in a flow meanwhile.
import { useLoaded } from '../data'
import { Shown } from '../ui'
import { DifferenceShown } from './difference'
import { kinds, type Kinds } from './kinds'
import { difference, docOf, type Doc } from './model'

type Definition = Parameters<typeof docOf>[0]

/** On a page that does not edit it. */
export function Changed({ before, after }: { before: Definition; after: Definition }) {
  const all = useLoaded(kinds, [])
  return <Shown of={all}>{known => <DifferenceShown of={difference(docOf(before), docOf(after), known)} />}</Shown>
}

/** In the editor, which has what is drawn here. */
export function Conflict({ mine, base, theirs, at, all, keep, take }: { mine: Doc; base: Doc; theirs: Doc; at: string; all: Kinds; keep: () => void; take: () => void }) {
  return <div class="note" role="alert">
    <h2>Changed meanwhile</h2>
    <p>Somebody saved this flow at {new Date(at).toLocaleTimeString()}, after you had opened it. Nothing is lost: yours is still here, theirs is stored.</p>
    <h3>What they changed</h3><DifferenceShown of={difference(base, theirs, all)} />
    <h3>What yours would change in theirs</h3><DifferenceShown of={difference(theirs, mine, all)} />
    <p class="buttons"><button type="button" onClick={keep}>Go on with mine</button><button type="button" onClick={take}>Take theirs</button></p>
  </div>
}
