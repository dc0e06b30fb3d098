// The audit trail, where the plan has one.
import { useState } from 'preact/hooks'
import { api, download, got, type Schemas } from '../api'
import { useAct, useLoaded } from '../data'
import { Days } from '../days'
import { useNarrowed } from '../lists'
import { narrow, useLocation } from '../router'
import { Button, Changes, Filters, Link, Refused, Search, Shown, Status, Table, When, Press } from '../ui'
import { acted } from '../words'

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
  const list = useNarrowed('/audit-logs', asked => api.GET('/audit-logs', { params: { query: asked } }), [
    'action',
    'actor',
    'resourceId',
    'resourceType',
  ])
  return (
    <>
      <p class="buttons">
        <Press
          act={act}
          work={async () => {
            setVerdict(null)
            setVerdict(await got(api.GET('/audit-logs/verify')))
          }}
        >
          Verify trail
        </Press>
        <Press act={act} work={() => download('/audit-logs/export', 'audit-logs.ndjson')}>
          Export all
        </Press>
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
        <Search name="action" placeholder="contact.created" />
        <Search label="Resource" name="resourceId" placeholder="an ID" />
        <Search label="Resource type" name="resourceType" placeholder="contact" />
        <Days />
        {useLocation().query.has('actor') && <Button onClick={() => narrow({ actor: '' })}>By anyone</Button>}
      </Filters>
      <Table
        what="entries"
        of={list}
        empty="They appear when a member or a program changes something."
        columns={[
          ['Time', each => <When at={each.createdAt} />],
          [
            'Who',
            ({ actor }) => (actor.id ? <Link to={`/settings/audit?actor=${actor.id}`}>{actor.name}</Link> : actor.name),
          ],
          ['Action', each => acted(each.action)],
          ['Resource', each => <code>{each.resource.id}</code>],
          ['Changes', each => <Changes of={each.changes ?? {}} />, 'wide'],
        ]}
      />
    </>
  )
}
