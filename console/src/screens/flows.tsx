// Flows: automations and workflows, what starts them, and the requests that came to their webhooks.
import { api, byId, exactly, got, save } from '../api'
import { useAct, useDraft, useLoaded } from '../data'
import { CHANGED, Days, days } from '../days'
import { objectOf, pretty } from '../exact'
import { ListScreen } from '../lists'
import { useCan } from '../me'
import { Later } from '../later'
import { kindById, meant, useFlows, Whom, type Kind } from '../names'
import { cleared, go, useLocation } from '../router'
import { draftKey, Refusal } from '../session'
import { occasion, SOURCES } from '../words'
import {
  Button,
  Choice,
  Confirm,
  Copy,
  Facts,
  Field,
  Findings,
  Json,
  JsonText,
  Link,
  Refused,
  Screen,
  Search,
  Section,
  Shown,
  Status,
  Tabs,
  When,
  plural,
  Press,
  UPDATED,
} from '../ui'
import { useState } from 'preact/hooks'
import type { Definition } from '../flow/kept'
import { RequestTable } from './requests'
import { Drawing, useDrawing } from './runs'

export function Flows() {
  const { query } = useLocation()
  const asked = (name: string) => query.get(name) || undefined
  const all = useFlows({ state: asked('state') as Definition['state'], name: asked('name'), ...days(query) })
  const may = useCan()('workflows:write')
  return (
    <ListScreen
      title="Flows"
      lead="What happens when an event comes in: automations and workflows."
      one="flow"
      needs="workflows:write"
      actions={
        may && (
          <Link class="button" to="/flows/import">
            Import
          </Link>
        )
      }
      filters={
        <>
          <Search name="name" placeholder="exact name" />
          <Choice name="state" options={['DRAFT', 'ACTIVE', 'PAUSED', 'ARCHIVED']} />
        </>
      }
      more={<Days of={CHANGED} />}
      empty={
        may ? (
          <>
            <Link to="/flows/new">Start with an example</Link>, or <Link to="/flows/import">import</Link> a file.
          </>
        ) : undefined
      }
      of={{ ...all, clear: cleared(query) }}
      columns={[
        ['Name', each => <Link to={`/flows/${each.kind}/${each.id}`}>{each.name}</Link>],
        ['State', each => <Status value={each.state} />],
        ['Trigger', each => SOURCES[each.triggerSource] ?? each.triggerSource],
        ['Type', each => (each.kind === 'workflows' ? 'steps' : 'graph')],
        ['Version', each => each.version || 'none yet'],
        UPDATED,
      ]}
    />
  )
}

/** What the runs that have not ended do, such as `2 runs in progress end`; nothing if there is none. */
export const underWay = (count: number, one: string, many: string) =>
  count ? `${count < 1000 ? plural(count, 'run') : '1,000 or more runs'} in progress ${count === 1 ? one : many}` : ''

const TABS = [
  ['', 'Overview'],
  ['edit', 'Edit'],
  ['versions', 'Versions'],
  ['requests', 'Requests'],
] as const
export const FlowTabs = ({ here, tab, flow }: { here: string; tab: string; flow: string }) => (
  <Tabs label="Flow" at={here} of={TABS} now={tab}>
    <Link to={`/runs?flow=${flow}`}>Runs</Link>
  </Tabs>
)

export const kindOf = (text: string): Kind => (text === 'automations' ? 'automations' : 'workflows')
/** The page of the flow with this id, which begins with what the flow is. */
export const flowPath = (id: string) => `/flows/${kindById(id)}/${id}`

export function Flow({
  kind,
  id,
  tab = '',
  children,
}: {
  kind: string
  id: string
  tab?: string
  children?: (of: Kind, version: number) => preact.ComponentChildren
}) {
  const of = kindOf(kind)
  const path = byId(id)
  const read = () => exactly<Definition>(`/${of}/${encodeURIComponent(id)}`)
  const flow = useLoaded(read, [of, id])
  const may = useCan()
  const value = flow.value?.value
  const [conflict, setConflict] = useState<Conflict | null>(null)
  /** Does this to the flow as it is shown here. When somebody changed it first, the page shows theirs, and asks. */
  const attempt = async (wish: Wish, tag: string, shown: Definition) => {
    try {
      await wish.work(tag)
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 412) throw error
      const now = await read()
      flow.set(now)
      // What is so already was our own act, whose answer was lost.
      if (!wish.stands?.(now.value)) return setConflict({ wish, before: shown, now })
    }
    setConflict(null)
    if (wish.leaves) go('/flows', true)
    else await flow.reload()
  }
  const wanted = (wish: Wish) => async () => {
    if (flow.value) await attempt(wish, flow.value.tag, flow.value.value)
  }
  const patch = (body: object) => (tag: string) => {
    return got<unknown>(api.PATCH(`/${of}/{id}`, { ...path, headers: { 'If-Match': tag }, body }))
  }
  const become = (label: string, state: Definition['state']) =>
    wanted({ label, work: patch({ state }), stands: now => now.state === state })
  const under = value?.stats.underWay ?? 0
  const goOn = underWay(under, 'continues', 'continue'),
    end = underWay(under, 'ends', 'end')
  const here = `/flows/${of}/${id}`
  const isDrawn = sessionStorage.getItem(draftKey(`flow.${id}`)) !== null
  return (
    <Screen
      title={value?.name ?? 'Flow'}
      id={id}
      actions={
        value && (
          <>
            {may(`${of}:write`) && (
              <>
                {['DRAFT', 'PAUSED'].includes(value.state) && (
                  <Confirm label="Activate" title="Activate this flow?" act={become('Activate', 'ACTIVE')}>
                    <p>
                      It is checked, and its content becomes version {value.version + 1} if it has changed. From then
                      on, runs are started by {occasion(value.trigger)}.
                    </p>
                    {isDrawn && <p class="odd">Unsaved changes in the editor are not included.</p>}
                  </Confirm>
                )}
                {value.state === 'ACTIVE' && (
                  <Confirm label="Pause" title="Pause this flow?" act={become('Pause', 'PAUSED')}>
                    <p>Events no longer start runs{goOn && `; ${goOn}`}.</p>
                  </Confirm>
                )}
                {value.state !== 'ARCHIVED' && (
                  <Confirm label="Archive" danger title="Archive this flow?" act={become('Archive', 'ARCHIVED')}>
                    <p>
                      Events no longer start runs{end && `, and ${end}`}. This cannot be undone. It stays readable, and
                      Duplicate creates a draft with the same content. To stop it for a while, pause it.
                    </p>
                  </Confirm>
                )}
                {may('runs:write') && value.state === 'ACTIVE' && <StartRun of={of} id={id} />}
                <Confirm
                  label="Duplicate"
                  title="Duplicate this flow?"
                  act={async () => {
                    const made = await got<{ id: string }>(api.POST(`/${of}/{id}/duplicate`, { ...path, body: {} }))
                    go(`/flows/${of}/${made.id}/edit`)
                  }}
                >
                  <p>Creates a draft with the same content. It gets its own webhook once it is activated.</p>
                </Confirm>
                {of === 'automations' && (
                  <Confirm
                    label="Delete"
                    danger
                    title="Delete this flow?"
                    act={wanted({
                      label: 'Delete',
                      work: tag => got(api.DELETE('/automations/{id}', { ...path, headers: { 'If-Match': tag } })),
                      leaves: true,
                    })}
                  >
                    <p>
                      It disappears from all lists and cannot be restored; its webhook answers 404
                      {end && `, and ${end}`}. Its runs stay readable.
                    </p>
                  </Confirm>
                )}
              </>
            )}
            <Export of={of} id={id} />
          </>
        )
      }
    >
      <FlowTabs here={here} tab={tab} flow={id} />
      {isDrawn && (
        <p class="note">
          You have unsaved changes in the <Link to={`${here}/edit`}>editor</Link>. Activate and Export use what is
          saved.
        </p>
      )}
      {conflict && (
        <Meanwhile
          of={conflict}
          keep={() => attempt(conflict.wish, conflict.now.tag, conflict.now.value)}
          take={() => setConflict(null)}
        />
      )}
      {tab === 'requests' ? (
        <RequestTable of={of} id={id} isHook={!value || value.trigger.source === 'inbound_webhook'} />
      ) : (
        <Shown of={flow}>
          {({ value }) =>
            children ? children(of, value.version) : <Overview of={of} value={value} wanted={wanted} patch={patch} />
          }
        </Shown>
      )}
    </Screen>
  )
}

/** Something that is done to a flow, under the revision that it was shown in. */
interface Wish {
  label: string
  work: (tag: string) => Promise<unknown>
  stands?: (now: Definition) => boolean
  leaves?: boolean
}
interface Conflict {
  wish: Wish
  before: Definition
  now: { value: Definition; tag: string }
}
const comparing = () => import('../flow/changed')

function Meanwhile({
  of: { wish, before, now },
  keep,
  take,
}: {
  of: Conflict
  keep: () => Promise<void>
  take: () => void
}) {
  const act = useAct()
  const [from, to] = [before.state, now.value.state].map(state => state.toLowerCase())
  return (
    <div class="note" role="alert">
      <h2>Changed by someone else</h2>
      <p>
        Someone saved this flow at <When at={now.value.updatedAt} />, after you opened it: it{' '}
        {from === to ? `is still ${to}` : `was ${from} and is now ${to}`}. Nothing was done yet; this page shows their
        changes.
      </p>
      <h3>Their changes</h3>
      <Later load={comparing} show={({ Changed }) => <Changed before={before} after={now.value} />} />
      <Refused problem={act.problem} />
      <p class="buttons">
        <Press act={act} work={keep}>
          {wish.label} anyway
        </Press>
        <Button onClick={take}>Keep theirs</Button>
      </p>
    </div>
  )
}

/** The flow with its templates and cases as a file, called as its key. */
function Export({ of, id }: { of: Kind; id: string }) {
  const take = async () => {
    const file = (await exactly<{ key: string }>(`/${of}/${id}/export`)).value
    save(new Blob([`${pretty(file)}\n`], { type: 'application/json' }), `${file.key}.json`)
  }
  return <Press work={take}>Export</Press>
}

type Wanted = { wanted: (wish: Wish) => () => Promise<void>; patch: (body: object) => Wish['work'] }

function Overview({ of, value, ...wishing }: { of: Kind; value: Definition } & Wanted) {
  const trigger = value.trigger
  const may = useCan()(`${of}:write`)
  const drawn = useDrawing(
    { [of === 'workflows' ? 'workflowId' : 'automationId']: value.id },
    undefined,
    value.updatedAt,
  )
  return (
    <>
      <Facts
        of={[
          ['State', <Status value={value.state} />],
          ['Version', value.version || 'none yet'],
          ['Trigger', occasion(trigger)],
          ...(trigger.webhookUrl
            ? ([
                [
                  'Webhook',
                  <span class="copyable">
                    <code>{trigger.webhookUrl}</code> <Copy text={trigger.webhookUrl} />
                  </span>,
                ],
                ['Signature', trigger.signingSecretSet ? 'required' : 'not required'],
                [
                  'Contact found by',
                  trigger.contactLookup ? (
                    <>
                      {trigger.contactLookup.replaceAll('_', ' ')} at <code>{trigger.contactPath}</code>
                    </>
                  ) : (
                    '–'
                  ),
                ],
              ] as const)
            : []),
          [
            'Latest 1,000 runs',
            Object.entries(value.stats.runs)
              .map(([status, count]) => `${count} ${status.toLowerCase()}`)
              .join(', ') || 'none yet',
          ],
          ['Updated', <When at={value.updatedAt} />],
        ]}
      />
      {trigger.webhookUrl && may && <Webhook of={of} id={value.id} {...wishing} />}
      {value.findings.length > 0 && (
        <Section title="Findings" actions={<Link to={`/flows/${of}/${value.id}/edit`}>Open in the editor</Link>}>
          <Findings of={value.findings} at={each => <code>{each.pointer}</code>} />
        </Section>
      )}
      <Drawing title="Diagram" of={drawn} />
      <Section title="Definition">
        <Json value={'steps' in value ? value.steps : value.graph} open={false} />
      </Section>
    </>
  )
}

/** A new URL or a new secret of the webhook; the old one is good for nothing from then on. */
function Webhook({ of, id, wanted, patch }: { of: Kind; id: string } & Wanted) {
  const [secret, setSecret] = useState('')
  const rotate = (tag: string) => {
    const asked = { ...byId(id), headers: { 'If-Match': tag } }
    return got<unknown>(api.POST(`/${of}/{id}/webhook/rotate`, asked))
  }
  const change = async (tag: string) => {
    await patch({ trigger: { signingSecret: secret } })(tag)
    setSecret(typed => (typed === secret ? '' : typed))
  }
  return (
    <div class="buttons">
      <Confirm label="New URL" title="Replace the webhook URL?" danger act={wanted({ label: 'New URL', work: rotate })}>
        <p>The old URL answers 404 at once. Give senders the new one, which this page then shows.</p>
      </Confirm>
      <Confirm
        label="New secret"
        title="Change the signing secret?"
        danger
        act={wanted({ label: 'New secret', work: change })}
      >
        <p>
          Requests signed with the old secret, or not at all, are refused at once. Give senders the new one; it is not
          shown again. If left empty, there is none, and anyone who knows the URL can post.
        </p>
        <Field
          label="Signing secret"
          autocomplete="off"
          value={secret}
          set={setSecret}
          pointer="/trigger/signingSecret"
        />
      </Confirm>
    </div>
  )
}

function StartRun({ of, id }: { of: Kind; id: string }) {
  const [{ contactId, data }, change, forget] = useDraft(`start.${id}`, { contactId: '', data: '{}' })
  const start = async () => {
    const body = { contactId: (await meant(contactId)) ?? '', data: objectOf(data, '/data') }
    const { runId } = await got(api.POST(`/${of}/{id}/runs`, { ...byId(id), body }))
    forget()
    go(`/runs/${runId}`)
  }
  return (
    <Confirm label="Start run" title="Start a run manually" sure="Start" act={start}>
      <Whom
        value={contactId}
        set={contactId => change({ contactId })}
        required
        hint={
          <Link target="_blank" to="/contacts/new">
            Create a contact in a new tab
          </Link>
        }
      />
      <JsonText
        label="Data (JSON)"
        rows={4}
        value={data}
        set={data => change({ data })}
        pointer="/data"
        hint="Optional: what templates read as trigger."
      />
    </Confirm>
  )
}
