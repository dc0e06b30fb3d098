// What became of one definition in another, in words.
import { Changes } from '../ui'
import { KINDS } from '../words'
import type { Difference, Link } from './model'
import { words } from './form'

export const Members = ({ of }: { of: Record<string, unknown[]> }) => <Changes of={of} name={words} />

export function DifferenceShown({ of }: { of: Difference }) {
  const { trigger, nodes, edges } = of
  const name = (each: { id: string; type: string }) => (
    <>
      {KINDS[each.type] ?? each.type} <code>{each.id}</code>
    </>
  )
  const way = (each: Link) => (
    <>
      <code>{each.source}</code>
      {each.port !== 'next' && (
        <>
          {' '}
          by <b>{each.port}</b>
        </>
      )}{' '}
      → <code>{each.target}</code>
    </>
  )
  const all = [Object.keys(trigger), ...Object.values(nodes), ...Object.values(edges)]
  if (!all.flat().length) return <p class="empty">No differences.</p>
  return (
    <ul class="differences">
      {Object.keys(trigger).length > 0 && (
        <li>
          <b>Changed</b> the trigger
          <Members of={trigger} />
        </li>
      )}
      {nodes.added.map(each => (
        <li key={`+${each.id}`}>
          <b class="good">Added</b> {name(each)}
        </li>
      ))}
      {nodes.removed.map(each => (
        <li key={`-${each.id}`}>
          <b class="bad">Removed</b> {name(each)}
        </li>
      ))}
      {nodes.changed.map(each => (
        <li key={each.id}>
          <b>Changed</b> {name(each)}
          <Members of={each.members} />
        </li>
      ))}
      {edges.added.map(each => (
        <li key={`+${each.source}/${each.port}/${each.target}`}>
          <b class="good">Connected</b> {way(each)}
        </li>
      ))}
      {edges.removed.map(each => (
        <li key={`-${each.source}/${each.port}/${each.target}`}>
          <b class="bad">Disconnected</b> {way(each)}
        </li>
      ))}
    </ul>
  )
}
