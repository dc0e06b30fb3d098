// For super-admins: how the installation is, and what happened in any workspace.
import type { ComponentChildren } from 'preact'
import { api, got, type Schemas } from '../api'
import { useListed, useLoaded, type Page } from '../data'
import { Days, days } from '../days'
import { narrow, useLocation } from '../router'
import {
  Button,
  Choice,
  Facts,
  Filters,
  Link,
  Screen,
  Search,
  Section,
  Sentence,
  Shown,
  Status,
  Table,
  When,
  type Column,
} from '../ui'
import { STATUSES as OUTCOMES } from './messages'
import { STATUSES as RUNNING } from './runs'

const TABS = [
  ['', 'Workspaces'],
  ['health', 'Health'],
  ['runs', 'Runs'],
  ['attempts', 'Attempts'],
  ['audit', 'Audit trail'],
] as const

export function AdminScreen({ tab, lead, children }: { tab: string; lead: string; children: ComponentChildren }) {
  return (
    <Screen title="All workspaces" lead={lead}>
      <nav class="tabs" aria-label="Installation">
        {TABS.map(([key, label]) => (
          <Link key={key} to={key ? `/admin/${key}` : '/admin'} aria-current={key === tab ? 'page' : undefined}>
            {label}
          </Link>
        ))}
      </nav>
      {children}
    </Screen>
  )
}

// --- health -----------------------------------------------------------------------------------------

const some = (count: number, isLeft = false) => (
  <>
    {count ? <b class="bad">{count.toLocaleString()}</b> : 'none'}
    {isLeft && ', maybe more: there was no time to check all'}
  </>
)

export function Health() {
  const stats = useLoaded(() => got(api.GET('/admin/stats')), [])
  const found = useLoaded(() => got(api.GET('/admin/invariants')), [])
  return (
    <AdminScreen tab="health" lead="Whether everything due gets done.">
      <Section
        title="Checks"
        actions={
          <Button
            class="small"
            disabled={found.busy}
            onClick={() => void Promise.all([found.reload(), stats.reload()])}
          >
            Check again
          </Button>
        }
      >
        <Shown of={found}>
          {of => (
            <>
              <p class="verdict" role="status">
                <Status value={of.healthy ? 'PASSED' : 'FAILED'} />{' '}
                {of.healthy ? 'All checks pass.' : 'A check fails: see docs/operating.md.'}
              </p>
              <Facts
                of={[
                  [
                    'Oldest due',
                    of.oldestDueSeconds ? `for ${Math.round(of.oldestDueSeconds).toLocaleString()} s` : 'nothing',
                  ],
                  ...Object.entries(of.overdue)
                    .filter(([, count]) => count)
                    .map(([kind, count]) => [`Overdue: ${kind.replaceAll('_', ' ')}`, some(count)] as const),
                  ['Stuck runs', some(of.orphans, of.orphansLeft)],
                  ['Rows without a job', some(of.missingJobs, of.missingLeft)],
                  ['Jobs without a row', some(of.strayJobs, of.straysLeft)],
                  ['Keys that lead nowhere', some(of.unlistedKeys, of.unlistedLeft)],
                  ['Messages with unknown outcome', some(of.unknownDeliveries)],
                  ['Segments, dates and schedules given up', some(of.givenUp)],
                  ['Audit entries outside the chain', some(of.unchainedAuditLogs)],
                ]}
              />
            </>
          )}
        </Shown>
      </Section>
      <Section title="Totals">
        <Shown of={stats}>
          {of => (
            <Facts
              of={[
                ['Workspaces', of.workspaces.toLocaleString()],
                ['Suspended', of.suspended.toLocaleString()],
                ['Users', of.users.toLocaleString()],
                ['Active flows', of.activeDefinitions.toLocaleString()],
                ['Due runs', of.dueRuns.toLocaleString()],
                ['Due messages', of.dueMessages.toLocaleString()],
              ]}
            />
          )}
        </Shown>
      </Section>
    </AdminScreen>
  )
}

// --- what happened ----------------------------------------------------------------------------------

const Where = ({ id }: { id: string }) => (
  <Link to={`/admin/${id}`}>
    <code>{id}</code>
  </Link>
)

type Asked = ReturnType<typeof days> & { workspaceId: string | undefined; limit: number; cursor: string | undefined }
type Found = { id: string; createdAt: string; workspaceId: string; reason?: { detail?: string | null } | null }

/** A list of every workspace, or of one; `how` says how it is filled, `filter` is one of its own. */
function Anywhere<T extends Found>({
  tab,
  what,
  lead,
  how,
  filter,
  read,
  columns,
}: {
  tab: string
  what: string
  lead: string
  how: string
  filter: ComponentChildren
  read: (asked: Asked) => Promise<Page<T>>
  columns: Column<T>[]
}) {
  const { query } = useLocation()
  const workspaceId = query.get('workspace') ?? ''
  const list = useListed(
    cursor => read({ workspaceId: workspaceId || undefined, ...days(query), limit: 50, cursor }),
    [query.toString()],
  )
  return (
    <AdminScreen tab={tab} lead={lead}>
      <Filters>
        {filter}
        <Days />
        {workspaceId && <Button onClick={() => narrow({ workspace: '' })}>Show all workspaces</Button>}
      </Filters>
      <Table
        caption={`${what}, newest first`}
        of={list}
        id={each => each.id}
        columns={columns}
        empty={
          query.size ? (
            <p>
              No {what.toLowerCase()} match. <Link to={`/admin/${tab}`}>Show all</Link>.
            </p>
          ) : (
            <p>
              No {what.toLowerCase()} yet. {how}
            </p>
          )
        }
      />
    </AdminScreen>
  )
}

const CREATED: Column<Found> = { name: 'Created', show: each => <When at={each.createdAt} /> },
  WORKSPACE: Column<Found> = { name: 'Workspace', show: each => <Where id={each.workspaceId} /> }
const REASON: Column<Found> = {
  name: 'Reason',
  class: 'wide',
  show: each => <Sentence text={each.reason?.detail ?? ''} />,
}

export function AnyRuns() {
  const status = useLocation().query.get('status') ?? ''
  return (
    <Anywhere<Schemas['AdminRun']>
      tab="runs"
      what="Runs"
      lead="Runs in every workspace."
      how="They appear when an event reaches a flow of any workspace."
      filter={<Choice label="Status" name="status" value={status} options={RUNNING} />}
      read={asked =>
        got(
          api.GET('/admin/runs', {
            params: { query: { ...asked, status: (status || undefined) as Schemas['AdminRun']['status'] | undefined } },
          }),
        )
      }
      columns={[
        CREATED,
        { name: 'Status', show: each => <Status value={each.status} /> },
        WORKSPACE,
        { name: 'Run', show: each => <code>{each.id}</code> },
        REASON,
      ]}
    />
  )
}

export function AnyAttempts() {
  const status = useLocation().query.get('status') ?? ''
  return (
    <Anywhere<Schemas['AdminAttempt']>
      tab="attempts"
      what="Attempts"
      lead="Attempts to send a message, in every workspace."
      how="They appear when a flow or a broadcast sends a message."
      filter={<Choice label="Status" name="status" value={status} options={OUTCOMES} />}
      read={asked =>
        got(
          api.GET('/admin/delivery-attempts', {
            params: {
              query: { ...asked, status: (status || undefined) as Schemas['AdminAttempt']['status'] | undefined },
            },
          }),
        )
      }
      columns={[
        CREATED,
        { name: 'Status', show: each => <Status value={each.status} /> },
        WORKSPACE,
        { name: 'Via', show: each => `${each.channel}${each.provider ? `, ${each.provider}` : ''}` },
        { name: 'Message', show: each => <code>{each.messageId}</code> },
        REASON,
      ]}
    />
  )
}

export function AnyAudit() {
  const action = useLocation().query.get('action') ?? ''
  return (
    <Anywhere<Omit<Schemas['AdminAuditLog'], 'changes'>>
      tab="audit"
      what="Entries"
      lead="Who did what, in every workspace."
      how="They appear when a member or a program changes something."
      filter={<Search label="Action" name="action" value={action} placeholder="workspace.suspended" />}
      read={asked =>
        got(api.GET('/admin/audit-logs', { params: { query: { ...asked, action: action || undefined } } }))
      }
      columns={[
        { ...CREATED, name: 'Time' },
        { name: 'Who', show: each => each.actor.name },
        { name: 'Action', show: each => each.action.replaceAll('.', ' ').replaceAll('_', ' ') },
        { name: 'Resource', show: each => <code>{each.resource.id}</code> },
        WORKSPACE,
      ]}
    />
  )
}
