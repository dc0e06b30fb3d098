// Requests to a webhook: accepted, repeated or refused, and why; the body as a tree of paths.
import { useState } from 'preact/hooks'
import { api, byId, got } from '../api'
import { useLoaded } from '../data'
import { Days } from '../days'
import { parse, tried } from '../exact'
import { useNarrowed } from '../lists'
import { useCan } from '../me'
import { kindById, type Kind } from '../names'
import { go } from '../router'
import {
  Choice,
  Confirm,
  Copy,
  Facts,
  Filters,
  Json,
  Link,
  Screen,
  Search,
  Section,
  Shown,
  Status,
  Table,
  When,
} from '../ui'
import { triggerPath } from '../webhooks'

export function RequestTable({ of, id, isHook }: { of: Kind; id: string; isHook: boolean }) {
  const list = useNarrowed(
    `/${of}/{id}/webhook-requests`,
    query => api.GET(`/${of}/{id}/webhook-requests`, { params: { path: { id }, query } }),
    ['outcome', 'code'],
    2500,
  )
  return (
    <>
      <Filters
        more={
          <>
            <Search label="Refusal code" name="code" placeholder="such as contact_not_found" />
            <Days />
          </>
        }
      >
        <Choice name="outcome" options={['ACCEPTED', 'REPEATED', 'REFUSED']} />
      </Filters>
      <Table
        what="requests"
        of={list}
        empty={
          isHook
            ? 'Send an event to the webhook URL on the overview; it appears here at once.'
            : 'No webhook starts this flow; its trigger says what does.'
        }
        columns={[
          [
            'Received',
            each => (
              <Link to={`/requests/${each.id}`}>
                <When at={each.createdAt} />
              </Link>
            ),
          ],
          ['Outcome', each => <Status value={each.outcome} />],
          ['Status', each => each.status],
          ['Run', each => (each.runId ? <Link to={`/runs/${each.runId}`}>run</Link> : '–')],
          ['Reason', each => each.detail ?? '', 'wide'],
        ]}
      />
    </>
  )
}

const drawing = () => import('../flow/versions')

const parsed = (body: string) => tried(() => ({ value: parse(body) }), null)

/** The path as Liquid prints it. */
const printed = (path: string) => `{{${triggerPath(path)}}}`

export function Request({ id }: { id: string }) {
  const path = byId(id)
  const request = useLoaded(() => got(api.GET('/webhook-requests/{id}', path)), [id])
  const [picked, setPicked] = useState('')
  const can = useCan()
  const flowId = request.value?.definitionId ?? ''
  const kind = kindById(flowId)
  return (
    <Screen
      title="Request"
      id={id}
      actions={
        request.value?.outcome === 'REFUSED' &&
        can('runs:write') && (
          <Confirm
            label="Retry"
            title="Retry this request?"
            act={async () => {
              const { runId } = await got(api.POST('/webhook-requests/{id}/retry', path))
              go(`/runs/${runId}`)
            }}
          >
            <p>
              Its body goes through the webhook again, with the flow as it is now. If it is accepted, one run starts.
            </p>
          </Confirm>
        )
      }
    >
      <Shown of={request}>
        {value => (
          <>
            <p class="verdict">
              <Status value={value.outcome} /> answered with {value.status}
              {value.detail && `: ${value.detail}`}
            </p>
            <Facts
              of={[
                ['Flow', <Link to={`/flows/${kind}/${flowId}`}>View flow</Link>],
                ['Received', <When at={value.createdAt} />],
                ['From', value.ip],
                ['Duration', `${value.durationMs} ms`],
                ['Run', value.runId ? <Link to={`/runs/${value.runId}`}>View run</Link> : 'none'],
                ['Contact', value.contactId ? <Link to={`/contacts/${value.contactId}`}>View contact</Link> : 'none'],
              ]}
            />
            <Section title="Body">
              <Body body={value.body} pick={setPicked} />
              {picked && (
                <>
                  <p class="picked" role="status">
                    <code>{picked}</code> <Copy text={picked} label="Copy path" />{' '}
                    <Copy text={printed(picked)} label={`Copy ${printed(picked)}`} />
                  </p>
                  {can(`${kind}:write`) && (
                    <div class="buttons">
                      <Confirm
                        label="Find contacts by this"
                        title="Find contacts by this value?"
                        sure="Open in editor"
                        act={async () => (await drawing()).propose(kind, flowId, { contactPath: picked })}
                      >
                        <p>
                          The flow then looks for its contact at <code>{picked}</code>. It opens in the editor as an
                          unsaved change; other unsaved changes there are replaced.
                        </p>
                      </Confirm>
                    </div>
                  )}
                </>
              )}
            </Section>
            <Section title="Headers">
              <Facts of={Object.entries(value.headers)} />
            </Section>
          </>
        )}
      </Shown>
    </Screen>
  )
}

function Body({ body, pick }: { body: string | null; pick: (path: string) => void }) {
  if (body === null) return <p class="empty">The body was not kept.</p>
  const tree = parsed(body)
  if (!tree)
    return (
      <>
        <p class="soft">Not JSON:</p>
        <pre tabIndex={0}>{body}</pre>
      </>
    )
  return (
    <>
      <p class="soft">Click a value to get its path.</p>
      <Json value={tree.value} pick={pick} />
    </>
  )
}
