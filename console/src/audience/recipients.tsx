// Who is in the audience of a broadcast, what became of each, and why.
import { useEffect, useRef, useState } from 'preact/hooks'
import { api, got } from '../api'
import { useAct, useListed } from '../data'
import { ContactLink, meant, useContactNames } from '../names'
import { narrow, useLocation } from '../router'
import { Choice, Field, Filters, Form, Link, Section, Status, Table, When } from '../ui'
import { Reasons } from '../screens/why'
import type { Stored } from './broadcasts'

export const STATUSES = [
  'PENDING',
  'QUEUED',
  'SENT',
  'DELIVERED',
  'BOUNCED',
  'COMPLAINED',
  'FAILED',
  'UNKNOWN',
  'SUPPRESSED',
  'CANCELLED',
] as const
const words = (code: string) => code.replaceAll('_', ' ')
/** Why a recipient gets nothing or waits, and what became of the message. */
const WHY: Record<string, string> = {
  erased: 'erased',
  no_address: 'no address',
  suppressed: 'suppressed',
  unsubscribed: 'unsubscribed',
  no_consent: 'not opted in to the topic',
  capped: 'message limit reached',
  quota: 'messages used up',
  cancelled: 'broadcast cancelled',
  recipient_deferred: 'recipient cannot be reached for now',
  quiet_hours: 'waits for the end of quiet hours',
  busy_domain: 'others at the domain come first',
  suppressed_max_wait: 'quiet hours last too long',
  bounced_hard: 'bounced permanently',
  bounced_soft: 'bounced this time',
  complained: 'reported as spam',
  invalid_address: 'invalid address',
  template_error: 'template error',
  template_missing: 'template missing',
  channel_not_configured: 'channel not set up',
  provider_rejected: 'rejected by the provider',
  provider_throttled: 'throttled by the provider',
  provider_unreachable: 'provider unreachable',
  provider_misconfigured: 'credentials or sender rejected',
  recipients_refused: 'too many recipients rejected',
  outcome_unknown: 'unknown whether it was sent',
  worker_lost: 'the service stopped while it was sent',
  restored: 'perhaps sent before a backup was restored',
  found_arrived: 'found to have arrived',
  found_lost: 'found not to have arrived',
  poisoned: 'given up: it stopped the service several times',
}

export function Recipients({ of, isMoving, reload }: { of: Stored; isMoving: boolean; reload: () => Promise<void> }) {
  const { query } = useLocation()
  const status = query.get('status') ?? '',
    reason = query.get('reason') ?? ''
  const asked = {
    status: (status || undefined) as (typeof STATUSES)[number] | undefined,
    reason: reason || undefined,
    limit: 50,
  }
  const list = useListed(
    cursor =>
      got(api.GET('/broadcasts/{id}/recipients', { params: { path: { id: of.id }, query: { ...asked, cursor } } })),
    ['recipients', of.id, status, reason],
    isMoving ? 2000 : 0,
  )
  const names = useContactNames(list.rows?.map(each => each.contactId) ?? [])
  return (
    <Section title="Recipients">
      <Filters>
        <Choice label="Status" name="status" value={status} options={STATUSES} />
        <Choice
          label="Reason"
          name="reason"
          value={reason}
          options={[...Object.entries(WHY), ...(reason && !(reason in WHY) ? [[reason, words(reason)] as const] : [])]}
        />
      </Filters>
      <Table
        caption="Recipients"
        of={{
          ...list,
          reload: async () => {
            await list.reload()
            await reload()
          },
        }}
        id={each => each.contactId}
        empty={
          status || reason ? (
            <p>
              No recipients match. <Link to={`/broadcasts/${of.id}`}>Show all</Link>.
            </p>
          ) : (
            <p>
              {of.audience.isComplete
                ? 'Nobody is in the audience: nobody matched it when the broadcast started.'
                : of.state === 'CANCELLED'
                  ? 'It was cancelled before its audience was known.'
                  : 'No recipients yet: the audience is still being determined.'}
            </p>
          )
        }
        columns={[
          {
            name: 'Contact',
            show: each => <ContactLink id={each.reason === 'erased' ? null : each.contactId} names={names} />,
          },
          { name: 'Status', show: each => <Status value={each.status} /> },
          { name: 'Reason', show: each => (each.reason ? (WHY[each.reason] ?? words(each.reason)) : '–') },
          {
            name: 'Message',
            show: each => (each.messageId ? <Link to={`/messages/${each.messageId}`}>view</Link> : '–'),
          },
          { name: 'Due', show: each => <When at={each.dueAt} /> },
          {
            name: 'Why',
            show: each =>
              each.reason !== 'erased' && (
                <button type="button" class="small" onClick={() => narrow({ contact: each.contactId })}>
                  Why?
                </button>
              ),
          },
        ]}
      />
    </Section>
  )
}

/** Why it did or did not reach somebody, who need not be in the audience. */
export function AskWhy({ broadcastId }: { broadcastId: string }) {
  const { query } = useLocation()
  const contactId = query.get('contact') ?? ''
  const [typed, setTyped] = useState('')
  const names = useContactNames([contactId || null])
  const act = useAct()
  const found = useRef<HTMLHeadingElement>(null)
  const shown = useRef(contactId)
  useEffect(() => {
    if (shown.current !== contactId) found.current?.focus()
    shown.current = contactId
  }, [contactId])
  return (
    <Section title="Why, or why not?">
      <Form act={act} label="Why?" submit={async () => narrow({ contact: (await meant(typed)) ?? '' })}>
        <Field
          label="Contact"
          required
          value={typed}
          set={setTyped}
          pointer="/contactId"
          hint="Email address, name or ID; also of contacts outside the audience."
        />
      </Form>
      {contactId && (
        <>
          <h3 ref={found} tabIndex={-1}>
            <ContactLink id={contactId} names={names} />
          </h3>
          <Reasons contactId={contactId} about={{ broadcastId }} />
        </>
      )}
    </Section>
  )
}
