// For super-admins: how the installation is, and what happened in any workspace.
import type { ComponentChildren } from 'preact'
import { api, got, type Schemas } from '../api'
import { useListed, useLoaded } from '../data'
import { Days, days } from '../days'
import { narrow, useLocation } from '../router'
import { Choice, Facts, Filters, Link, Screen, Search, Section, Sentence, Shown, Status, Table, When } from '../ui'
import { STATUSES as OUTCOMES } from './messages'
import { STATUSES as RUNNING } from './runs'

const TABS = [['', 'Workspaces'], ['health', 'Health'], ['runs', 'Runs'], ['attempts', 'Attempts'], ['audit', 'Audit trail']] as const

export function AdminScreen({ tab, lead, children }: { tab: string; lead: string; children: ComponentChildren }) {
  return <Screen title="All workspaces" lead={lead}>
    <nav class="tabs" aria-label="Installation">{TABS.map(([key, label]) => <Link key={key} to={key ? `/admin/${key}` : '/admin'} aria-current={key === tab ? 'page' : undefined}>{label}</Link>)}</nav>
    {children}
  </Screen>
}

// --- health -----------------------------------------------------------------------------------------

const some = (count: number, isLeft = false) => <>{count ? <b class="bad">{count.toLocaleString()}</b> : 'none'}{isLeft && ', maybe more: there was no time to check all'}</>

export function Health() {
  const stats = useLoaded(() => got(api.GET('/admin/stats')), [])
  const found = useLoaded(() => got(api.GET('/admin/invariants')), [])
  return <AdminScreen tab="health" lead="Whether everything due gets done.">
    <Section title="Checks" actions={<button type="button" class="small" disabled={found.busy} onClick={() => void Promise.all([found.reload(), stats.reload()])}>Check again</button>}>
      <Shown of={found}>{of => <>
        <p class="verdict" role="status"><Status value={of.healthy ? 'PASSED' : 'FAILED'} /> {of.healthy ? 'All checks pass.' : 'A check fails: see docs/operating.md.'}</p>
        <Facts of={[
          ['Oldest due', of.oldestDueSeconds ? `for ${Math.round(of.oldestDueSeconds).toLocaleString()} s` : 'nothing'],
          ...Object.entries(of.overdue).filter(([, count]) => count).map(([kind, count]) => [`Overdue: ${kind.replaceAll('_', ' ')}`, some(count)] as const),
          ['Stuck runs', some(of.orphans, of.orphansLeft)], ['Rows without a job', some(of.missingJobs, of.missingLeft)], ['Jobs without a row', some(of.strayJobs, of.straysLeft)],
          ['Messages with unknown outcome', some(of.unknownDeliveries)], ['Audit entries outside the chain', some(of.unchainedAuditLogs)],
        ]} />
      </>}</Shown>
    </Section>
    <Section title="Totals"><Shown of={stats}>{of => <Facts of={[
      ['Workspaces', of.workspaces.toLocaleString()], ['Suspended', of.suspended.toLocaleString()], ['Users', of.users.toLocaleString()], ['Active flows', of.activeDefinitions.toLocaleString()],
      ['Due runs', of.dueRuns.toLocaleString()], ['Due messages', of.dueMessages.toLocaleString()],
    ]} />}</Shown></Section>
  </AdminScreen>
}

// --- what happened ----------------------------------------------------------------------------------

const Where = ({ id }: { id: string }) => <Link to={`/admin/${id}`}><code>{id}</code></Link>
/** An empty list of one of these tabs: how it is filled, or how to see all of it. */
const none = (tab: string, what: string, how: string, query: URLSearchParams) => (query.size ? <p>No {what} match. <Link to={`/admin/${tab}`}>Show all</Link>.</p> : <p>No {what} yet. {how}</p>)

function InWorkspace({ id }: { id: string }) {
  return id ? <button type="button" onClick={() => narrow({ workspace: '' })}>Show all workspaces</button> : null
}

export function AnyRuns() {
  const { query } = useLocation()
  const status = query.get('status') ?? '', workspaceId = query.get('workspace') ?? ''
  const filters = { status: (status || undefined) as Schemas['AdminRun']['status'] | undefined, workspaceId: workspaceId || undefined, ...days(query), limit: 50 }
  const list = useListed(cursor => got(api.GET('/admin/runs', { params: { query: { ...filters, cursor } } })), [query.toString()])
  return <AdminScreen tab="runs" lead="Runs in every workspace.">
    <Filters><Choice label="Status" name="status" value={status} options={RUNNING} /><Days /><InWorkspace id={workspaceId} /></Filters>
    <Table caption="Runs, newest first" of={list} id={each => each.id} empty={none('runs', 'runs', 'They appear when an event reaches a flow of any workspace.', query)} columns={[
      { name: 'Created', show: each => <When at={each.createdAt} /> }, { name: 'Status', show: each => <Status value={each.status} /> }, { name: 'Workspace', show: each => <Where id={each.workspaceId} /> },
      { name: 'Run', show: each => <code>{each.id}</code> }, { name: 'Reason', class: 'wide', show: each => <Sentence text={each.reason?.detail ?? ''} /> },
    ]} />
  </AdminScreen>
}

export function AnyAttempts() {
  const { query } = useLocation()
  const status = query.get('status') ?? '', workspaceId = query.get('workspace') ?? ''
  const filters = { status: (status || undefined) as Schemas['AdminAttempt']['status'] | undefined, workspaceId: workspaceId || undefined, ...days(query), limit: 50 }
  const list = useListed(cursor => got(api.GET('/admin/delivery-attempts', { params: { query: { ...filters, cursor } } })), [query.toString()])
  return <AdminScreen tab="attempts" lead="Attempts to send a message, in every workspace.">
    <Filters><Choice label="Status" name="status" value={status} options={OUTCOMES} /><Days /><InWorkspace id={workspaceId} /></Filters>
    <Table caption="Attempts, newest first" of={list} id={each => each.id} empty={none('attempts', 'attempts', 'They appear when a flow or a broadcast sends a message.', query)} columns={[
      { name: 'Created', show: each => <When at={each.createdAt} /> }, { name: 'Status', show: each => <Status value={each.status} /> }, { name: 'Workspace', show: each => <Where id={each.workspaceId} /> },
      { name: 'Via', show: each => `${each.channel}${each.provider ? `, ${each.provider}` : ''}` }, { name: 'Message', show: each => <code>{each.messageId}</code> }, { name: 'Reason', class: 'wide', show: each => <Sentence text={each.reason?.detail ?? ''} /> },
    ]} />
  </AdminScreen>
}

export function AnyAudit() {
  const { query } = useLocation()
  const action = query.get('action') ?? '', workspaceId = query.get('workspace') ?? ''
  const filters = { action: action || undefined, workspaceId: workspaceId || undefined, ...days(query), limit: 50 }
  const list = useListed(cursor => got(api.GET('/admin/audit-logs', { params: { query: { ...filters, cursor } } })), [query.toString()])
  return <AdminScreen tab="audit" lead="Who did what, in every workspace.">
    <Filters><Search label="Action" name="action" value={action} placeholder="workspace.suspended" /><Days /><InWorkspace id={workspaceId} /></Filters>
    <Table caption="Entries, newest first" of={list} id={each => each.id} empty={none('audit', 'entries', 'They appear when a member or a program changes something.', query)} columns={[
      { name: 'Time', show: each => <When at={each.createdAt} /> }, { name: 'Who', show: each => each.actor.name }, { name: 'Action', show: each => each.action.replaceAll('.', ' ').replaceAll('_', ' ') },
      { name: 'Resource', show: each => <code>{each.resource.id}</code> }, { name: 'Workspace', show: each => <Where id={each.workspaceId} /> },
    ]} />
  </AdminScreen>
}
