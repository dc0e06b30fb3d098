// What keeps a template or a segment from being deleted.
import type { Loaded } from './data'
import { FlowLink, useBroadcastNames, useFlowNames, useFlows, useSegmentNames } from './names'
import { Link, Section, Shown } from './ui'

/** Each by its name; `nothing` is said where nothing does. */
export function UsedBy({ of, nothing }: { of: Loaded<{ usedBy: string[] }>; nothing: string }) {
  const ids = of.value?.usedBy ?? []
  const begin = (prefix: string) => ids.filter(each => each.startsWith(prefix))
  const segments = begin('seg_'), broadcasts = begin('bro_')
  const runs = [...begin('wfl_').map(each => ({ workflowId: each })), ...begin('aut_').map(each => ({ automationId: each }))]
  const flowNames = useFlowNames(useFlows(), runs), broadcastNames = useBroadcastNames(broadcasts), segmentNames = useSegmentNames(segments)
  return <Section title="Used by"><Shown of={of}>{() => (ids.length ? <ul class="plain used">
    {runs.map(run => <li key={Object.values(run)[0]}><FlowLink run={run} names={flowNames} /></li>)}
    {broadcasts.map(each => <li key={each}><Link to={`/broadcasts/${each}`}>{broadcastNames.get(each) ?? each}</Link></li>)}
    {segments.map(each => <li key={each}><Link to={`/segments/${each}`}>{segmentNames.get(each) ?? each}</Link></li>)}
  </ul> : <p class="empty">{nothing}</p>)}</Shown></Section>
}
