// Why a flow did or did not reach a contact, with the record that proves each reason; and the event that one may be.
import { api, exactly, got, type Schemas } from '../api'
import { useLoaded, type Listed } from '../data'
import { begins } from '../days'
import { ContactLink, merged, options, useBroadcasts, useContactNames, type FlowName } from '../names'
import { narrow, useFilter } from '../router'
import { ADVICE, textsOf } from '../words'
import { Choice, Facts, Filters, Json, Link, Screen, Section, Shown, When } from '../ui'
import { flowPath } from './flows'
import { useNaming } from './runs'
import texts from './why.json'

/** What to do about an explanation whose record has no reason; and about what keeps somebody from getting a broadcast. */
const { explanations: EXPLAINED, exclusions: EXCLUDED } = textsOf<'explanations' | 'exclusions'>(texts)

type Reason = Schemas['Explaining']
type Choosable = { id: string; name: string; createdAt: string }
type About = { definitionId?: string; broadcastId?: string; since?: string }

const RECORDS: Record<Reason['evidence']['type'], readonly [string, (evidence: Reason['evidence']) => string]> = {
  definition: ['the flow', ({ id }) => flowPath(id)],
  event: ['the event', ({ id }) => `/events/${id}`],
  webhook_request: ['the request', ({ id }) => `/requests/${id}`],
  run: ['the run', ({ id, nodeId }) => `/runs/${id}${nodeId ? `?step=${encodeURIComponent(nodeId)}` : ''}`],
  message: ['the message', ({ id }) => `/messages/${id}`],
  broadcast: ['the broadcast', ({ id }) => `/broadcasts/${id}`],
}

const MOST_RUNS = 20 // that the service explains at once, as the bounds of all else that it says

/** What is asked about: a flow or a broadcast, by the beginning of its id. */
const about = (id: string): About =>
  id === 'all' ? {} : id.startsWith('bro_') ? { broadcastId: id } : { definitionId: id }

export function WhyNot({ contactId, all }: { contactId: string; all: Listed<FlowName> }) {
  const why = useFilter('why'),
    since = useFilter('since')
  const sent = useBroadcasts(why.startsWith('bro_') ? why : '')
  const both = merged<Choosable>(all, {
    ...sent,
    rows: sent.rows && sent.rows.map(each => ({ ...each, name: `Broadcast: ${each.name}` })),
  })
  return (
    <Section title="Why, or why not?">
      <Filters>
        <Choice
          label="Flow or broadcast"
          name="why"
          any="choose one"
          options={[['all', 'all flows'], ...options(both)]}
          growing={both}
        />
        {!why.startsWith('bro_') && (
          <label>
            Since
            <input type="date" value={since} onChange={event => narrow({ since: event.currentTarget.value })} />
          </label>
        )}
      </Filters>
      {why ? (
        <Reasons
          contactId={contactId}
          about={{ ...about(why), ...(begins(since) ? { since: begins(since)!.toISOString() } : {}) }}
        />
      ) : (
        <p class="empty">Choose a flow or a broadcast to see what happened for this contact, and what held it back.</p>
      )}
    </Section>
  )
}

export function Reasons({ contactId, about }: { contactId: string; about: About }) {
  const found = useLoaded(
    async () =>
      (await got(api.GET('/contacts/{id}/explain', { params: { path: { id: contactId }, query: about } }))).data,
    [contactId, JSON.stringify(about)],
    () => 10_000,
  )
  const naming = useNaming((found.value ?? []).map(each => each.sentence))
  return (
    <Shown of={found}>
      {reasons =>
        reasons.length ? (
          <>
            <ol class="timeline whys">
              {reasons.map((each, index) => {
                const [record, to] = RECORDS[each.evidence.type]
                const advice =
                  (each.reason && (each.evidence.type === 'broadcast' ? EXCLUDED : ADVICE)[each.reason]) ||
                  EXPLAINED[each.code]
                return (
                  <li key={index}>
                    <span class="soft">
                      <When at={each.at} />
                    </span>
                    <p>
                      <span class="sentence">{naming(each.sentence)}</span>
                      {advice && (
                        <>
                          {' '}
                          <b>{advice}</b>
                        </>
                      )}{' '}
                      <Link to={to(each.evidence)}>
                        {record}
                        {each.evidence.nodeId && `, step ${each.evidence.nodeId}`}
                      </Link>
                    </p>
                  </li>
                )
              })}
            </ol>
            {reasons.length >= MOST_RUNS && (
              <p class="hint">
                Only the newest {MOST_RUNS} runs, 200 messages, 50 requests and 50 missed occasions are explained.
              </p>
            )}
          </>
        ) : (
          <p class="empty">Nothing found: no event, request, run or message of this contact.</p>
        )
      }
    </Shown>
  )
}

export function Event({ id }: { id: string }) {
  const event = useLoaded(
    async () => (await exactly<Schemas['ContactEvent']>(`/contact-events/${encodeURIComponent(id)}`)).value,
    [id],
  )
  const names = useContactNames([event.value?.contactId ?? null])
  return (
    <Screen title={event.value?.name ?? 'Event'} id={id}>
      <Shown of={event}>
        {value => (
          <>
            <Facts
              of={[
                ['Contact', <ContactLink id={value.contactId} names={names} />],
                ['Time', <When at={value.at} />],
              ]}
            />
            <Section title="Properties">
              <Json value={value.properties} />
            </Section>
          </>
        )}
      </Shown>
    </Screen>
  )
}
