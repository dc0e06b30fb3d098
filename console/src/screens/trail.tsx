// The audit trail, where the plan has one.
import { useState } from 'preact/hooks'
import { api, download, got, type Schemas } from '../api'
import { useAct, useListed, useLoaded } from '../data'
import { Days, days } from '../days'
import { narrow, useLocation } from '../router'
import { Button, Filters, Link, Refused, Search, Shown, Status, Table, When } from '../ui'

/** Not asked for on a plan that does not have it. */
export function Audit() {
  const plan = useLoaded(() => got(api.GET('/billing/plan')), [])
  return (
    <Shown of={plan}>
      {({ plan: own, available }) => {
        const least = available.find(each => each.features.includes('audit_logs'))
        if (available.find(each => each.plan === own)?.features.includes('audit_logs') ?? !least) return <Trail />
        return (
          <p class="empty">
            The audit trail is part of the {least?.plan} plan. <Link to="/settings/plan">See plans</Link>
          </p>
        )
      }}
    </Shown>
  )
}

function Trail() {
  const [verdict, setVerdict] = useState<Schemas['AuditLogsVerification'] | null>(null)
  const act = useAct()
  const { query } = useLocation()
  const of = (name: string) => query.get(name) || undefined
  const filters = {
    action: of('action'),
    actor: of('actor'),
    resourceId: of('resourceId'),
    resourceType: of('resourceType'),
    ...days(query),
  }
  const list = useListed(
    cursor => got(api.GET('/audit-logs', { params: { query: { ...filters, cursor, limit: 50 } } })),
    [query.toString()],
  )
  return (
    <>
      <p class="buttons">
        <Button
          disabled={act.busy}
          onClick={() => void act.run(async () => setVerdict(await got(api.GET('/audit-logs/verify'))))}
        >
          Verify trail
        </Button>
        <Button
          disabled={act.busy}
          onClick={() => void act.run(() => download('/audit-logs/export', 'audit-logs.ndjson'))}
        >
          Export all
        </Button>
      </p>
      <Refused problem={act.problem} />
      {verdict && (
        <p role="status">
          {verdict.whole ? (
            <>
              <Status value="ACTIVE" /> Intact: {verdict.entries} entries, none changed or missing.
            </>
          ) : (
            <>
              <Status value="FAILED" /> {verdict.fault?.message}
            </>
          )}
        </p>
      )}
      <Filters>
        <Search label="Action" name="action" value={filters.action ?? ''} placeholder="contact.created" />
        <Search label="Resource" name="resourceId" value={filters.resourceId ?? ''} placeholder="an ID" />
        <Search label="Resource type" name="resourceType" value={filters.resourceType ?? ''} placeholder="contact" />
        <Days />
        {filters.actor && <Button onClick={() => narrow({ actor: '' })}>By anyone</Button>}
      </Filters>
      <Table
        caption="Entries, newest first"
        of={list}
        id={each => each.id}
        empty={
          query.size ? (
            <p>
              No entries match. <Link to="/settings/audit">Show all</Link>
            </p>
          ) : (
            <p>No changes yet. They appear when a member or a program changes something.</p>
          )
        }
        columns={[
          { name: 'Time', show: each => <When at={each.createdAt} /> },
          {
            name: 'Who',
            show: ({ actor }) =>
              actor.id ? <Link to={`/settings/audit?actor=${actor.id}`}>{actor.name}</Link> : actor.name,
          },
          { name: 'Action', show: each => each.action.replaceAll('.', ' ').replaceAll('_', ' ') },
          { name: 'Resource', show: each => <code>{each.resource.id}</code> },
          {
            name: 'Changes',
            class: 'wide',
            show: each =>
              Object.entries(each.changes ?? {})
                .map(([name, [before, after]]) => `${name}: ${JSON.stringify(before)} → ${JSON.stringify(after)}`)
                .join('; '),
          },
        ]}
      />
    </>
  )
}
