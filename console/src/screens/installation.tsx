// For super-admins: how the installation is, and what happened in any workspace.
import type { ComponentChildren } from 'preact'
import { api, got } from '../api'
import { useLoaded } from '../data'
import { Days } from '../days'
import { useNarrowed } from '../lists'
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
  Tabs,
  type Column,
  type Tabled,
  CREATED,
  STATUS,
} from '../ui'
import { acted } from '../words'
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
      <Tabs label="Installation" at="/admin" of={TABS} now={tab} />
      {children}
    </Screen>
  )
}

// --- health ---

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
          <Button small disabled={found.busy} onClick={() => void Promise.all([found.reload(), stats.reload()])}>
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

// --- what happened ---

const Where = ({ id }: { id: string }) => (
  <Link to={`/admin/${id}`}>
    <code>{id}</code>
  </Link>
)

type Found = { createdAt: string; workspaceId: string; reason?: { detail?: string | null } | null }

/** A list of every workspace, or of one; `filter` is one of its own. */
function Anywhere<T extends Found>({
  tab,
  lead,
  filter,
  ...list
}: Tabled<T> & { tab: string; what: string; lead: string; filter: ComponentChildren }) {
  return (
    <AdminScreen tab={tab} lead={lead}>
      <Filters>
        {filter}
        <Days />
        {useLocation().query.has('workspaceId') && (
          <Button onClick={() => narrow({ workspaceId: '' })}>Show all workspaces</Button>
        )}
      </Filters>
      <Table {...list} />
    </AdminScreen>
  )
}

const WORKSPACE: Column<Found> = ['Workspace', each => <Where id={each.workspaceId} />],
  REASON: Column<Found> = ['Reason', each => <Sentence text={each.reason?.detail ?? ''} />, 'wide']

export const AnyRuns = () => (
  <Anywhere
    tab="runs"
    what="runs"
    lead="Runs in every workspace."
    empty="They appear when an event reaches a flow of any workspace."
    filter={<Choice name="status" options={RUNNING} />}
    of={useNarrowed('/admin/runs', asked => api.GET('/admin/runs', { params: { query: asked } }), [
      'status',
      'workspaceId',
    ])}
    columns={[CREATED, STATUS, WORKSPACE, ['Run', each => <code>{each.id}</code>], REASON]}
  />
)

export const AnyAttempts = () => (
  <Anywhere
    tab="attempts"
    what="attempts"
    lead="Attempts to send a message, in every workspace."
    empty="They appear when a flow or a broadcast sends a message."
    filter={<Choice name="status" options={OUTCOMES} />}
    of={useNarrowed(
      '/admin/delivery-attempts',
      asked => api.GET('/admin/delivery-attempts', { params: { query: asked } }),
      ['status', 'workspaceId'],
    )}
    columns={[
      CREATED,
      STATUS,
      WORKSPACE,
      ['Via', each => `${each.channel}${each.provider ? `, ${each.provider}` : ''}`],
      ['Message', each => <code>{each.messageId}</code>],
      REASON,
    ]}
  />
)

export const AnyAudit = () => (
  <Anywhere
    tab="audit"
    what="entries"
    lead="Who did what, in every workspace."
    empty="They appear when a member or a program changes something."
    filter={<Search name="action" placeholder="workspace.suspended" />}
    of={useNarrowed('/admin/audit-logs', asked => api.GET('/admin/audit-logs', { params: { query: asked } }), [
      'action',
      'workspaceId',
    ])}
    columns={[
      ['Time', CREATED[1]],
      ['Who', each => each.actor.name],
      ['Action', each => acted(each.action)],
      ['Resource', each => <code>{each.resource.id}</code>],
      WORKSPACE,
    ]}
  />
)
