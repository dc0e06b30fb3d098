// Flows: automations and workflows, what starts them, and the requests that came to their webhooks.
import { api, got, tagged, type Schemas } from '../api'
import { useLoaded } from '../data'
import { objectOf } from '../exact'
import { useCan } from '../me'
import { meant, useFlows, type Kind } from '../names'
import { go, useLocation } from '../router'
import { SOURCES } from '../words'
import { Choice, Confirm, Copy, Facts, Field, Filters, Json, Link, Screen, Section, Shown, Status, Table, When, plural } from '../ui'
import { useState } from 'preact/hooks'
import { RequestTable } from './requests'
import { Drawing } from './runs'

export function Flows() {
  const { query } = useLocation()
  const state = query.get('state') ?? ''
  const all = useFlows()
  const may = useCan()('workflows:write')
  const list = { rows: all.value?.filter(each => !state || each.state === state) ?? null, problem: all.problem, busy: all.busy, more: null, reload: all.reload }
  return <Screen title="Flows" lead="What happens when an event comes in: automations and workflows." actions={may && <Link class="button primary" to="/flows/new">New flow</Link>}>
    <Filters><Choice label="State" name="state" value={state} options={['DRAFT', 'ACTIVE', 'PAUSED', 'ARCHIVED']} /></Filters>
    <Table caption="Flows, last changed first" of={list} id={each => each.id} empty={state
      ? <p>No flow is like that. <Link to="/flows">Show all</Link>.</p>
      : <p>There is no flow yet. {may && <Link to="/flows/new">Begin with an example</Link>}</p>} columns={[
      { name: 'Name', show: each => <Link to={`/flows/${each.kind}/${each.id}`}>{each.name}</Link> },
      { name: 'State', show: each => <Status value={each.state} /> },
      { name: 'Starts with', show: each => SOURCES[each.triggerSource] ?? each.triggerSource },
      { name: 'Drawn as', show: each => (each.kind === 'workflows' ? 'steps' : 'graph') },
      { name: 'Version', show: each => each.version || 'none yet' },
      { name: 'Changed', show: each => <When at={each.updatedAt} /> },
    ]} />
  </Screen>
}

/** How many runs have not ended. */
export const underWay = (runs: Record<string, number>) => Object.entries(runs).filter(([status]) => ['QUEUED', 'RUNNING', 'WAITING'].includes(status)).reduce((sum, [, count]) => sum + count, 0)

export function FlowTabs({ here, tab, flow }: { here: string; tab: string; flow: string }) {
  const tabs = [['', 'Overview'], ['edit', 'Edit'], ['versions', 'Versions'], ['requests', 'Requests']] as const
  return <nav class="tabs" aria-label="Of this flow">
    {tabs.map(([name, label]) => <Link key={name} to={name ? `${here}/${name}` : here} aria-current={tab === name ? 'page' : undefined}>{label}</Link>)}
    <Link to={`/runs?flow=${flow}`}>Runs</Link>
  </nav>
}

type Definition = Schemas['Workflow'] | Schemas['Automation']
export const kindOf = (text: string): Kind => (text === 'automations' ? 'automations' : 'workflows')
const PATHS = { workflows: '/workflows/{id}', automations: '/automations/{id}' } as const

export function Flow({ kind, id, tab = '', children }: { kind: string; id: string; tab?: string; children?: (of: Kind) => preact.ComponentChildren }) {
  const of = kindOf(kind)
  const path = { params: { path: { id } } }
  const flow = useLoaded(() => tagged<Definition>(of === 'workflows' ? api.GET('/workflows/{id}', path) : api.GET('/automations/{id}', path)), [of, id])
  const may = useCan()
  const value = flow.value?.value
  const change = async (state: 'ACTIVE' | 'PAUSED' | 'ARCHIVED') => {
    const body = { state } as never
    const headers = { 'If-Match': flow.value?.tag ?? '' }
    await got<unknown>(of === 'workflows' ? api.PATCH(PATHS.workflows, { ...path, headers, body }) : api.PATCH(PATHS.automations, { ...path, headers, body }))
    await flow.reload()
  }
  const waiting = underWay(value?.stats.runs ?? {})
  const here = `/flows/${of}/${id}`
  return <Screen title={value?.name ?? 'Flow'} lead={<code>{id}</code>} actions={value && may(`${of}:write`) && <>
    {value.state !== 'ACTIVE' && <Confirm label="Activate" title="Activate this flow?" act={() => change('ACTIVE')}><p>It is checked, and its content becomes version {value.version + 1} if it has changed. From then on events start runs of it.</p></Confirm>}
    {value.state === 'ACTIVE' && <Confirm label="Pause" title="Pause this flow?" act={() => change('PAUSED')}><p>Events start no runs any more. {waiting ? `${plural(waiting, 'run')} under way ${waiting === 1 ? 'goes' : 'go'} on.` : ''}</p></Confirm>}
    {value.state !== 'ARCHIVED' && <Confirm label="Archive" danger title="Archive this flow?" act={() => change('ARCHIVED')}><p>Events start no runs any more{waiting ? `, and ${plural(waiting, 'run')} under way ${waiting === 1 ? 'ends' : 'end'}` : ''}. It stays readable.</p></Confirm>}
    {may('runs:write') && value.state === 'ACTIVE' && <StartRun of={of} id={id} />}
    <Confirm label="Duplicate" title="Duplicate this flow?" act={async () => {
      const copy = { ...path, body: {} }
      const made = await got<{ id: string }>(of === 'workflows' ? api.POST('/workflows/{id}/duplicate', copy) : api.POST('/automations/{id}/duplicate', copy))
      go(`/flows/${of}/${made.id}/edit`)
    }}><p>A draft that says the same, with a webhook of its own once it is activated.</p></Confirm>
    {of === 'automations' && <Confirm label="Delete" danger title="Delete this flow?" act={async () => {
      await got(api.DELETE('/automations/{id}', { ...path, headers: { 'If-Match': flow.value?.tag ?? '' } }))
      go('/flows', true)
    }}><p>It is gone from all lists and cannot be brought back; its webhook answers 404{waiting ? `, and ${plural(waiting, 'run')} under way ${waiting === 1 ? 'ends' : 'end'}` : ''}. Runs that it had stay readable.</p></Confirm>}
  </>}>
    <FlowTabs here={here} tab={tab} flow={id} />
    {children ? children(of) : tab === 'requests' ? <RequestTable kind={of} id={id} /> : <Shown of={flow}>{({ value, tag }) => <Overview of={of} value={value} tag={tag} reload={flow.reload} />}</Shown>}
  </Screen>
}

function Overview({ of, value, tag, reload }: { of: Kind; value: Definition; tag: string; reload: () => Promise<void> }) {
  const trigger = value.trigger
  const may = useCan()(`${of}:write`)
  return <>
    <Facts of={[
      ['State', <Status value={value.state} />], ['Version', value.version || 'none yet'], ['Starts with', SOURCES[trigger.source] ?? trigger.source],
      ...(trigger.webhookUrl ? [['Webhook', <span class="copyable"><code>{trigger.webhookUrl}</code> <Copy text={trigger.webhookUrl} /></span>], ['Signature', trigger.signingSecretSet ? 'required' : 'not required'],
        ['Contact found by', trigger.contactLookup ? <>{trigger.contactLookup.replaceAll('_', ' ')} at <code>{trigger.contactPath}</code></> : '–']] as const : []),
      ['Runs', Object.entries(value.stats.runs).map(([status, count]) => `${count} ${status.toLowerCase()}`).join(', ') || 'none yet'], ['Changed', <When at={value.updatedAt} />],
    ]} />
    {trigger.webhookUrl && may && <Webhook of={of} value={value} tag={tag} reload={reload} />}
    {value.findings.length > 0 && <Section title="Findings"><ul class="plain">{value.findings.map((finding, index) => <li key={index}><Status value={finding.severity} /> <code>{finding.pointer}</code> {finding.message}</li>)}</ul></Section>}
    <Drawing run={of === 'workflows' ? { workflowId: value.id } : { automationId: value.id }} />
    <Section title="As it is stored"><Json value={'steps' in value ? value.steps : value.graph} open={false} /></Section>
  </>
}

/** A new URL or a new secret of the webhook; the old one is good for nothing from then on. */
function Webhook({ of, value, tag, reload }: { of: Kind; value: Definition; tag: string; reload: () => Promise<void> }) {
  const [secret, setSecret] = useState('')
  const asked = { params: { path: { id: value.id } }, headers: { 'If-Match': tag } }
  const rotate = async () => {
    await got(of === 'workflows' ? api.POST('/workflows/{id}/webhook/rotate', asked) : api.POST('/automations/{id}/webhook/rotate', asked))
    await reload()
  }
  const change = async () => {
    const body = { trigger: { signingSecret: secret } } as never
    await got<unknown>(of === 'workflows' ? api.PATCH(PATHS.workflows, { ...asked, body }) : api.PATCH(PATHS.automations, { ...asked, body }))
    setSecret(typed => (typed === secret ? '' : typed))
    await reload()
  }
  return <div class="buttons">
    <Confirm label="New URL" title="Give this flow another webhook URL?" danger act={rotate}><p>The old URL answers 404 at once: whoever posts to it has to be given the new one, which this page shows then.</p></Confirm>
    <Confirm label="New secret" title="Change the signing secret?" danger act={change}>
      <p>At once requests that are signed with the old secret, or not at all, are refused. Give senders the new one; it is not shown again. Left empty, there is none, and anybody who knows the URL may post.</p>
      <Field label="Signing secret" autocomplete="off" value={secret} set={setSecret} />
    </Confirm>
  </div>
}

function StartRun({ of, id }: { of: Kind; id: string }) {
  const [contactId, setContact] = useState('')
  const [data, setData] = useState('{}')
  const start = async () => {
    const body = { contactId: await meant(contactId) ?? '', data: objectOf(data, '/data') }
    const path = { params: { path: { id } }, body }
    const { runId } = await got(of === 'workflows' ? api.POST('/workflows/{id}/runs', path) : api.POST('/automations/{id}/runs', path))
    go(`/runs/${runId}`)
  }
  return <Confirm label="Start a run" title="Start a run by hand" sure="Start" act={start}>
    <Field label="Contact" value={contactId} set={setContact} required hint="Email address, name or ID." />
    <Field label="Data, as JSON" rows={4} value={data} set={setData} hint="Templates read it as trigger." />
  </Confirm>
}

