// Words for codes. In advice.json each reason has a sentence that says what to do, were it that there is nothing to do.
import type { Schemas } from './api'
import advice from './advice.json'

/** The build has it as text. */
export const textsOf = <Table extends string>(json: unknown) =>
  JSON.parse(json as string) as Record<Table, Record<string, string>>

/** What to do about a reason; and what follows from the status of a message. */
export const { reasons: ADVICE, statuses: MEANING } = textsOf<'reasons' | 'statuses'>(advice)

export const KINDS: Record<string, string> = {
  trigger: 'Trigger',
  send_message: 'Send message',
  wait: 'Wait',
  wait_for: 'Wait for',
  branch: 'Branch',
  split: 'Split',
  throttle: 'Throttle',
  start_workflow: 'Start workflow',
  update_contact: 'Update contact',
  add_tag: 'Add tag',
  remove_tag: 'Remove tag',
  http_request: 'HTTP request',
  exit: 'Exit',
}

/** How a condition compares, in its form and in what came of it. */
export const OPERATORS: Record<string, string> = {
  eq: 'is',
  ne: 'exists and is not',
  gt: 'is more than',
  gte: 'is at least',
  lt: 'is less than',
  lte: 'is at most',
  in: 'is one of',
  contains: 'contains',
  starts_with: 'starts with',
  ends_with: 'ends with',
  exists: 'exists',
  before: 'is before',
  after: 'is after',
  within_last: 'is within the last',
}

export const SOURCES: Record<string, string> = {
  inbound_webhook: 'a webhook',
  manual: 'a member or another flow',
  contact_created: 'a new contact',
  tag_added: 'a tag',
  event: 'a contact event',
  segment_entered: 'entering a segment',
  segment_left: 'leaving a segment',
  date: 'a date of the contact',
  schedule: 'a schedule',
}

/** What starts runs by this trigger, with the tag, the event or the date by which it does. */
export function occasion(trigger: object): string {
  const { source = 'manual', tag, name, field, repeat } = trigger as Record<string, unknown>
  const by = String(source)
  const what = by === 'date' ? [String(field ?? '').replace('metadata.', ''), repeat && 'every year'] : [tag || name]
  const words = what.filter(each => each && typeof each === 'string').join(', ')
  return (SOURCES[by] ?? by) + (words && `: ${words}`)
}

export const DAYS = {
  mon: 'Monday',
  tue: 'Tuesday',
  wed: 'Wednesday',
  thu: 'Thursday',
  fri: 'Friday',
  sat: 'Saturday',
  sun: 'Sunday',
}

export const CHANNELS = { email: 'Email', sms: 'SMS', whatsapp: 'WhatsApp' }

/** What an entry of the audit trail says was done, such as `contact.created`. */
export const acted = (action: string) => action.replaceAll(/[._]/g, ' ')

/** Why a provider is left alone for a while, and what to do about it. */
export const WAITED_FOR: Record<Schemas['ProviderTrouble']['code'], string> = {
  provider_throttled: 'accepts no more for now. They go out by themselves once it does',
  provider_unreachable: 'does not respond. They go out by themselves once it does; its status page may say more',
  provider_misconfigured: 'rejects the credentials or the sender. Verify the channel',
  recipients_refused:
    'rejects so many addresses as unknown that it may be at fault. Check what it says, and verify the channel',
}

/** A value as it reads: a text in quotes where it would be taken for something else, or for nothing. */
export const asItReads = (value: unknown) =>
  typeof value === 'string' && !/^\s*$|^(true|false|null|-?\d.*|[[{"].*)$/.test(value) ? value : JSON.stringify(value)
