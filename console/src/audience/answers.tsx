// What a contact has answered about topics, and how a member records another answer.
import { api, byId, got, type Schemas } from '../api'
import { useDraft, useListed } from '../data'
import { useCan } from '../me'
import { page } from '../names'
import { CHANNELS } from '../words'
import { Confirm, Field, Link, Section, Table } from '../ui'

type Contact = Schemas['ContactInFull']
type Topic = Schemas['TopicShape']
type Channel = keyof typeof CHANNELS
type State = Schemas['TopicAnswer']['state']
/** Without a topic: the channel itself, of which marketing is that names none. */
interface Asked {
  contact: Contact
  topic: Topic | null
  channel: Channel
}

const STATES: Record<string, readonly [string, string]> = {
  subscribed: ['good', 'subscribed'],
  pending: ['odd', 'pending: asked to confirm'],
  unsubscribed: ['bad', 'unsubscribed'],
  bounced: ['bad', 'bounced'],
  complained: ['bad', 'complained'],
}
const ADDRESS: Record<Channel, 'email' | 'phone'> = { email: 'email', sms: 'phone', whatsapp: 'phone' }

const ALL = Object.keys(CHANNELS) as Channel[]
const NAMELESS = 'Marketing without a topic'

export const reachable = (contact: Contact, channel: Channel) => contact[ADDRESS[channel]] !== null

/** What the contact has answered; the default topic is the channel by another name. */
const stateOf = ({ contact, topic, channel }: Asked) =>
  (!topic || topic.isDefault ? contact.subscriptions[channel] : contact.topics[topic.id]?.[channel]) ?? ''

export function Answers({ contact, done }: { contact: Contact; done: () => Promise<unknown> }) {
  const topics = useListed(cursor => got(api.GET('/topics', page(cursor))), [])
  const may = useCan()('contacts:write')
  const named =
    topics.rows?.flatMap(topic => topic.channels.map((channel): Asked => ({ contact, topic, channel }))) ?? null
  const whole = topics.rows?.some(each => each.isDefault)
    ? []
    : ALL.map((channel): Asked => ({ contact, topic: null, channel }))
  return (
    <Section title="Topics" actions={<Link to="/settings/topics">All topics</Link>}>
      <Table
        what="topics"
        caption="Topics, by channel"
        of={{ ...topics, rows: named && [...named, ...whole] }}
        id={({ topic, channel }) => `${topic?.id ?? ''}${channel}`}
        columns={[
          [
            'Topic',
            ({ topic }) =>
              topic ? (
                <>
                  {topic.name}
                  {topic.isDefault && <span class="soft"> (default)</span>}
                </>
              ) : (
                NAMELESS
              ),
          ],
          [
            'Channel',
            ({ channel }) => (
              <>
                {CHANNELS[channel]}
                {!reachable(contact, channel) && <span class="soft"> (no address)</span>}
              </>
            ),
          ],
          ['Answer', asked => <Answer state={stateOf(asked)} />],
          ['Actions', asked => may && <Change asked={asked} done={done} />],
        ]}
      />
    </Section>
  )
}

function Answer({ state }: { state: string }) {
  const [tone, words] = STATES[state] ?? ['plain', 'never asked']
  return <span class={`status ${tone}`}>{words}</span>
}

function Change({ asked: { contact, topic, channel }, done }: { asked: Asked; done: () => Promise<unknown> }) {
  const now = stateOf({ contact, topic, channel })
  const other: State = now === 'subscribed' ? 'unsubscribed' : 'subscribed'
  const [{ state, source, evidence }, change, forget] = useDraft(`answer.${contact.id}.${topic?.id ?? ''}.${channel}`, {
    state: other,
    source: '',
    evidence: '',
  })
  const isYes = state === 'subscribed'
  return (
    <Confirm
      label="Record answer"
      title={`${topic?.name ?? NAMELESS}, ${CHANNELS[channel]}`}
      sure="Record"
      act={async () => {
        if (topic)
          await got(
            api.PUT('/contacts/{id}/topics/{topicId}', {
              params: { path: { id: contact.id, topicId: topic.id } },
              body: { channel, state, source: source.trim(), evidence: evidence.trim() || null },
            }),
          )
        else
          await got(
            api.PATCH('/contacts/{id}', {
              ...byId(contact.id),
              body: { subscriptions: { [channel]: state } } as Schemas['ContactPatch'],
            }),
          )
        forget()
        await done()
      }}
    >
      <Field
        label="The contact"
        value={state}
        set={next => change({ state: next as State })}
        options={[
          ['subscribed', 'opts in'],
          ['unsubscribed', 'opts out'],
        ]}
        pointer={topic ? '/state' : `/subscriptions/${channel}`}
      />
      <p class="hint">
        {!isYes
          ? 'From then on nothing about it is sent, not even what is waiting now.'
          : topic?.doubleOptIn
            ? 'A message asks the contact to confirm; until then nothing is sent.'
            : 'Only the contact can opt in. Record it only if they did.'}
      </p>
      {topic && (
        <>
          <Field
            label="Source"
            required
            value={source}
            set={source => change({ source })}
            placeholder="a call on Monday"
            pointer="/source"
          />
          <Field
            label="Evidence"
            rows={2}
            value={evidence}
            set={evidence => change({ evidence })}
            hint="Such as the wording they agreed to. It is kept with the answer."
            pointer="/evidence"
          />
        </>
      )}
    </Confirm>
  )
}
