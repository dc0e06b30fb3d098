// Broadcasts: composed, previewed by reason, scheduled; and while they are sent, who got it and who did not.
import { api, byId, exactly, got, sent, tagged, type Schemas } from '../api'
import { useLoaded, type Loaded } from '../data'
import { CHANGED, Days } from '../days'
import { ListScreen, useNarrowed } from '../lists'
import { useCan } from '../me'
import { ContactLink, useContactNames } from '../names'
import { go } from '../router'
import {
  Button,
  Choice,
  Confirm,
  Facts,
  Json,
  Link,
  Screen,
  Section,
  Sentence,
  Shown,
  Status,
  Rows,
  When,
  plural,
  UPDATED,
} from '../ui'
import { AskWhy, Recipients, STATUSES } from './recipients'
import { Preview as Mail } from '../preview'
import { TestMail } from '../test_mail'

export type Stored = Schemas['BroadcastShape']
type Counts = Schemas['AudienceCounts']
type Previewed = Schemas['BroadcastPreview']
/** A time that came no longer ago than this is as good as now. */
const LATE_MS = 5 * 60_000
const hasPassed = (sendAt: string) => Date.parse(sendAt) < Date.now() - LATE_MS
const STATES = ['DRAFT', 'SCHEDULED', 'SENDING', 'PAUSED', 'SENT', 'CANCELLED']
/** What is scheduled, those alone may change who may send it. */
export const mayChange = (may: (permission: string) => boolean, { state }: Stored) =>
  may('broadcasts:write') && (state !== 'SCHEDULED' || may('broadcasts:send'))
/** In the order in which the first that holds counts. */
const REASONS: Record<keyof Counts, string> = {
  total: 'in the audience',
  reachable: 'reachable',
  erased: 'erased',
  noAddress: 'no address on this channel',
  suppressed: 'suppressed',
  unsubscribed: 'unsubscribed',
  noConsent: 'not opted in to the topic',
  capped: 'message limit reached',
}

export const Broadcasts = () => (
  <ListScreen
    title="Broadcasts"
    lead="One message to many contacts."
    one="broadcast"
    needs="broadcasts:write"
    filters={<Choice name="state" options={STATES} />}
    more={<Days of={CHANGED} />}
    of={useNarrowed('/broadcasts', asked => api.GET('/broadcasts', { params: { query: asked } }), ['state'], 5000)}
    columns={[
      ['Name', each => <Link to={`/broadcasts/${each.id}`}>{each.name}</Link>],
      ['State', each => <Status value={each.state} />],
      ['Starts', each => <When at={each.startedAt ?? each.sendAt} none="once scheduled" />],
      ['Finished', each => <When at={each.finishedAt} />],
      UPDATED,
    ]}
  />
)

const DONE = ['SENT', 'DELIVERED', 'BOUNCED', 'COMPLAINED', 'FAILED', 'UNKNOWN', 'SUPPRESSED', 'CANCELLED'] as const
const key = (status: string) => status.toLowerCase() as keyof Stored['progress']
const isMoving = ({ state }: Stored) => ['SCHEDULED', 'SENDING', 'PAUSED'].includes(state)

const LONGEST = 200 // of a name
/** Makes a draft of the same, without its time; its id. */
async function copied(id: string): Promise<string> {
  const { name, segmentId, filter, tag, templateId, topicId, localTime, perMinute } = (
    await exactly<Stored>(`/broadcasts/${id}`)
  ).value
  const audience = { segmentId, filter, tag }
  const body = {
    name: [...`Copy of ${name}`].slice(0, LONGEST).join(''),
    ...audience,
    templateId,
    topicId,
    localTime,
    perMinute,
  }
  return (await exactly<Stored>('/broadcasts', sent('POST', body))).value.id
}

export function Broadcast({ id }: { id: string }) {
  const path = byId(id)
  const broadcast = useLoaded(
    async () => {
      const { value, tag } = await tagged(api.GET('/broadcasts/{id}', path))
      return { ...value, etag: tag }
    },
    [id],
    value => (isMoving(value) ? 1000 : 10_000),
  )
  const may = useCan(),
    sends = may('broadcasts:send')
  const value = broadcast.value
  const template = useLoaded(
    async () => (value ? got(api.GET('/templates/{id}', byId(value.templateId))) : null),
    [value?.templateId],
  )
  const done = async (answer: Promise<Partial<Stored>>) => {
    const changed = await answer
    if (value) broadcast.set({ ...value, ...changed })
  }
  const isOpen = value !== null && (value.state === 'DRAFT' || value.state === 'SCHEDULED')
  const isWaiting = isOpen && (value.state === 'DRAFT' || !!value.sendAt) // one that starts at once may have ended by the answer
  const count = () => got(api.POST('/broadcasts/{id}/preview', path))
  const preview = useLoaded(async () => (isWaiting ? count() : null), [id, isWaiting, value?.updatedAt])
  const neverBegan = isOpen || (value?.state === 'CANCELLED' && !value.audience.frozen)
  return (
    <Screen
      title={value?.name ?? 'Broadcast'}
      id={id}
      actions={
        value && (
          <>
            {isOpen && mayChange(may, value) && (
              <Link class="button" to={`/broadcasts/${id}/edit`}>
                Edit
              </Link>
            )}
            {value.state === 'DRAFT' && sends && (
              <Confirm
                label="Schedule"
                primary
                title="Send this broadcast?"
                read={async () => preview.set(await count())}
                act={() =>
                  done(got(api.POST('/broadcasts/{id}/schedule', { ...path, headers: { 'If-Match': value.etag } })))
                }
              >
                <p>
                  <Begins of={value} /> Everyone in the audience at that moment who can be reached gets it once.{' '}
                  {preview.value && <b>Now: {reached(preview.value)}. </b>}Until then it can be edited; afterwards it
                  can be paused or cancelled, but what was sent cannot be recalled.
                </p>
              </Confirm>
            )}
            {value.state === 'SENDING' && sends && (
              <Confirm
                label="Pause"
                title="Pause this broadcast?"
                act={() => done(got(api.POST('/broadcasts/{id}/pause', path)))}
              >
                <p>
                  Nothing more is sent, except what is being handed over at this moment. Resume continues where it
                  stopped.
                </p>
              </Confirm>
            )}
            {value.state === 'PAUSED' && sends && (
              <Confirm
                label="Resume"
                title="Resume this broadcast?"
                act={() => done(got(api.POST('/broadcasts/{id}/resume', path)))}
              >
                <p>
                  It continues where it stopped; nobody gets it twice.
                  {value.localTime &&
                    ` A pause of over an hour puts it off by a day where ${value.localTime} passed over an hour ago.`}
                </p>
              </Confirm>
            )}
            {isMoving(value) && sends && (
              <Confirm
                label="Cancel broadcast"
                danger
                title="Cancel this broadcast?"
                leave="Keep broadcast"
                act={() => done(got(api.POST('/broadcasts/{id}/cancel', path)))}
              >
                <p>What has not been sent never will be. This cannot be undone.</p>
              </Confirm>
            )}
            {may('broadcasts:write') && (
              <Confirm
                label="Duplicate"
                title="Duplicate this broadcast?"
                act={async () => go(`/broadcasts/${await copied(id)}/edit`)}
              >
                <p>Creates a draft with the same content and audience. Nothing is sent until it is scheduled.</p>
              </Confirm>
            )}
            {neverBegan && mayChange(may, value) && (
              <Confirm
                label="Delete"
                danger
                title={`Delete ${value.name}?`}
                act={async () => {
                  await got(api.DELETE('/broadcasts/{id}', path))
                  go('/broadcasts')
                }}
              >
                <p>None of it has been sent.</p>
              </Confirm>
            )}
          </>
        )
      }
    >
      <Shown of={broadcast}>
        {value => (
          <>
            {value.state === 'DRAFT' && !sends && (
              <p class="note">Admins, and editors who may send broadcasts, can schedule it.</p>
            )}
            <About of={value} template={template.value} />
            {value.audience.frozen ? (
              <Sent of={value} reload={broadcast.reload} />
            ) : isWaiting ? (
              <Preview of={value} preview={preview} isMail={template.value?.channel === 'email'} />
            ) : (
              <p class="empty">
                {value.state === 'CANCELLED'
                  ? 'It was cancelled before it began: nobody got it.'
                  : 'It starts: who gets it is being counted.'}
              </p>
            )}
          </>
        )}
      </Shown>
    </Screen>
  )
}

/** For who is about to schedule it. */
function Begins({ of: { sendAt, localTime } }: { of: Stored }) {
  const starts = !sendAt ? (
    'It starts at once.'
  ) : hasPassed(sendAt) ? (
    <>
      Its time, <When at={sendAt} />, has passed: choose another one first.
    </>
  ) : (
    <>
      It starts at <When at={sendAt} />.
    </>
  )
  return (
    <>
      {starts}
      {localTime &&
        ` Each contact gets it when it is next ${localTime} where they are: where that has passed by then, a day later.`}
    </>
  )
}

function About({ of, template }: { of: Stored; template: Schemas['Template'] | null }) {
  const segment = useLoaded(
    async () => (of.segmentId ? got(api.GET('/segments/{id}', byId(of.segmentId))) : null),
    [of.segmentId],
  )
  const topicId = of.topicId ?? (of.audience.frozen ? null : template?.topicId)
  const topic = useLoaded(async () => (topicId ? got(api.GET('/topics/{id}', byId(topicId))) : null), [topicId])
  const audience = of.segmentId ? (
    <Link to={`/segments/${of.segmentId}`}>{segment.value?.name ?? of.segmentId}</Link>
  ) : of.tag ? (
    <span class="tag">{of.tag}</span>
  ) : (
    'its own filter'
  )
  return (
    <>
      {of.reason && (
        <p class="note">
          <Sentence text={of.reason.sentence} />
        </p>
      )}
      <Facts
        of={[
          ['State', <Status value={of.state} />],
          ['Audience', audience],
          ['Template', <Link to={`/templates/${of.templateId}`}>{template?.name ?? of.templateId}</Link>],
          [
            'Topic',
            topicId ? (topic.value?.name ?? topicId) : of.audience.frozen ? 'the template’s' : template && 'none',
          ],
          ['Starts', <When at={of.startedAt ?? of.sendAt} none="once scheduled" />],
          ...(of.localTime ? ([['Contact’s local time', of.localTime]] as const) : []),
          ...(of.perMinute ? ([['Pace', `${of.perMinute.toLocaleString()} per minute`]] as const) : []),
          ['Finished', <When at={of.finishedAt} />],
        ]}
      />
      {of.filter && <Json value={of.filter} name="filter" open={false} />}
    </>
  )
}

function AudienceTable({ of }: { of: readonly (readonly [string, Counts | null])[] }) {
  const shown = of.filter((one): one is readonly [string, Counts] => one[1] !== null)
  return (
    <Rows
      look="audience"
      caption="The audience, by reason"
      of={Object.entries(REASONS)}
      id={([reason]) => reason}
      columns={[
        ['Contacts', ([, name]) => name],
        ...shown.map(
          ([column, counts]) =>
            [column, ([reason]: [string, string]) => counts[reason as keyof Counts].toLocaleString()] as const,
        ),
      ]}
    />
  )
}

const reached = ({ audience, isComplete, lookedAt }: Previewed) =>
  `${plural(audience.reachable, 'contact')} of ${audience.total.toLocaleString()} can be reached${
    isComplete ? '' : `, of the oldest ${lookedAt.toLocaleString()}: there was no time to count all`
  }`

/** Who would get it now, who would not and why, and what it would say to the newest. */
function Preview({ of, preview, isMail }: { of: Stored; preview: Loaded<Previewed | null>; isMail: boolean }) {
  const samples = preview.value?.samples ?? []
  const names = useContactNames(samples.map(each => each.contactId))
  const test = (to: string) =>
    got(
      api.POST('/broadcasts/{id}/test', {
        ...byId(of.id),
        body: { to, contactId: samples[0]?.contactId ?? null },
      }),
    )
  return (
    <>
      <Section
        title="Who would get it now"
        actions={
          <Button small disabled={preview.busy} onClick={() => void preview.reload()}>
            Count again
          </Button>
        }
      >
        <Shown of={preview}>
          {value =>
            value && (
              <>
                <p class="verdict" role="status">
                  {reached(value)}.
                </p>
                {value.refusal && (
                  <p class="wrong" role="alert">
                    It cannot be scheduled like this: <Sentence text={value.refusal.sentence} />
                  </p>
                )}
                <AudienceTable of={[['now', value.audience]]} />
              </>
            )
          }
        </Shown>
      </Section>
      {preview.value && (
        <Section
          title="Preview"
          actions={
            isMail && (
              <TestMail needs="broadcasts:write" send={test}>
                <p>
                  It{' '}
                  {samples.length ? 'shows what the newest reachable contact would get' : 'is filled in for no contact'}
                  , and is marked as a test. Nobody else gets it.
                </p>
              </TestMail>
            )
          }
        >
          {!samples.length && (
            <p class="empty">
              {preview.value.audience.reachable
                ? 'None of the newest contacts in the audience can be reached: there is no example to show.'
                : 'Nobody would get it now.'}
            </p>
          )}
          {samples.map(({ contactId, rendered }) => (
            <div class="card sample" key={contactId}>
              <p>
                To <ContactLink id={contactId} names={names} />
              </p>
              {Object.entries(rendered).map(([part, { rendered: text, missing, error }]) => (
                <div key={part}>
                  {error ? (
                    <p class="wrong">{error}</p>
                  ) : part === 'html' ? (
                    <Mail of={{ html: text ?? '' }} />
                  ) : part === 'subject' ? (
                    <p class="subject">
                      <b>{text}</b>
                    </p>
                  ) : (
                    !rendered.html && <pre tabIndex={0}>{text}</pre>
                  )}
                  {(missing?.length ?? 0) > 0 && <p class="odd">No value for {missing?.join(', ')}.</p>}
                </div>
              ))}
            </div>
          ))}
        </Section>
      )}
    </>
  )
}

/** Whoever presses a number of the progress would not see that the list below has changed. */
const toRecipients = () => {
  const list = document.getElementById('recipients')
  list?.scrollIntoView()
  list?.focus({ preventScroll: true })
}

function Sent({ of, reload }: { of: Stored; reload: () => Promise<void> }) {
  const { progress, audience } = of
  const ended = DONE.reduce((sum, status) => sum + progress[key(status)], 0)
  return (
    <>
      <Section title="Progress">
        <p class="verdict">
          {ended.toLocaleString()} of {progress.total.toLocaleString()}
          {!audience.isComplete &&
            (of.state === 'CANCELLED' ? ' before it was cancelled' : ' so far: the audience is still being determined')}
        </p>
        <progress aria-label="Contacts processed" max={Math.max(1, progress.total)} value={ended} />
        <div onClick={({ target }) => (target as Element).closest('a') && setTimeout(toRecipients)}>
          <Facts
            of={STATUSES.filter(status => progress[key(status)]).map(
              status =>
                [
                  status.toLowerCase(),
                  <Link to={`/broadcasts/${of.id}?status=${status}`}>{progress[key(status)].toLocaleString()}</Link>,
                ] as const,
            )}
          />
        </div>
      </Section>
      <Section title="Audience">
        <AudienceTable
          of={[
            ['when scheduled', audience.previewed],
            ['when started', audience.frozen],
            ['difference', audience.difference],
          ]}
        />
      </Section>
      <AskWhy broadcastId={of.id} />
      <div id="recipients" tabIndex={-1}>
        <Recipients of={of} isMoving={isMoving(of)} reload={reload} />
      </div>
    </>
  )
}
