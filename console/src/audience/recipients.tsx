// Who is in the audience of a broadcast, what became of each, and why.
import { useEffect, useRef, useState } from 'preact/hooks'
import { api, got } from '../api'
import { useListed } from '../data'
import { ContactLink, meant, useContactNames, Whom } from '../names'
import { cleared, narrow, useLocation, useFilter } from '../router'
import { Button, Choice, Filters, Form, Link, Section, Table, When, STATUS } from '../ui'
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
  suppressed_unverified: 'no owner has verified their email address',
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
  const status = useFilter('status'),
    reason = useFilter('reason')
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
        <Choice name="status" options={STATUSES} />
        <Choice
          name="reason"
          options={[...Object.entries(WHY), ...(reason && !(reason in WHY) ? [[reason, words(reason)] as const] : [])]}
        />
      </Filters>
      <Table
        what="recipients"
        of={{
          ...list,
          clear: cleared(query, ['status', 'reason']),
          reload: async () => {
            await list.reload()
            await reload()
          },
        }}
        id={each => each.contactId}
        none={
          of.audience.isComplete
            ? 'Nobody is in the audience: nobody matched it when the broadcast started.'
            : of.state === 'CANCELLED'
              ? 'It was cancelled before its audience was known.'
              : 'No recipients yet: the audience is still being determined.'
        }
        columns={[
          ['Contact', each => <ContactLink id={each.reason === 'erased' ? null : each.contactId} names={names} />],
          STATUS,
          ['Reason', each => (each.reason ? (WHY[each.reason] ?? words(each.reason)) : '–')],
          ['Message', each => (each.messageId ? <Link to={`/messages/${each.messageId}`}>view message</Link> : '–')],
          ['Due', each => <When at={each.dueAt} />],
          [
            'Why',
            each =>
              each.reason !== 'erased' && (
                <Button
                  small
                  aria-label={`Why? ${names.get(each.contactId) ?? each.contactId}`}
                  onClick={() => narrow({ contact: each.contactId })}
                >
                  Why?
                </Button>
              ),
          ],
        ]}
      />
    </Section>
  )
}

/** Why it did or did not reach somebody, who need not be in the audience. */
export function AskWhy({ broadcastId }: { broadcastId: string }) {
  const contactId = useFilter('contact')
  const [typed, setTyped] = useState('')
  const names = useContactNames([contactId || null])
  const found = useRef<HTMLHeadingElement>(null)
  const shown = useRef(contactId)
  useEffect(() => {
    if (shown.current !== contactId) found.current?.focus()
    shown.current = contactId
  }, [contactId])
  return (
    <Section title="Why, or why not?">
      <Form label="Why?" submit={async () => narrow({ contact: (await meant(typed)) ?? '' })}>
        <Whom required value={typed} set={setTyped} hint="Also of contacts outside the audience." />
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
