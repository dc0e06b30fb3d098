// What somebody changed in a flow, on a page that does not edit it.
import { useLoaded } from '../data'
import { Shown } from '../ui'
import { DifferenceShown } from './difference'
import { kinds } from './kinds'
import { difference, docOf } from './model'

type Definition = Parameters<typeof docOf>[0]

export function Changed({ before, after }: { before: Definition; after: Definition }) {
  const all = useLoaded(kinds, [])
  return <Shown of={all}>{known => <DifferenceShown of={difference(docOf(before), docOf(after), known)} />}</Shown>
}
