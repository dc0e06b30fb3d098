// What to do about a reason: each code has a sentence, were it that there is nothing to do.
import type { Schemas } from './api'

const LOOK = 'Look in the provider’s own log, and record on the message’s page what you found; there it can also be sent again.'

export const ADVICE: Record<string, string> = {
  suppressed_unsubscribed: 'Only the contact can opt in again.',
  suppressed_bounced: 'Correct the address, or lift the suppression on the contact if it works again. What is sent from then on arrives.',
  suppressed_complained: 'Do not write to this address again.',
  suppressed_max_wait: 'Send it again, or allow a longer wait under Settings, Workspace.',
  suppressed_answered: 'The contact has answered about this topic already, so it is not asked again.',
  suppressed_stopped: 'The recipient can reply START to get messages again.',
  suppressed_manual: 'An admin can lift it on the contact or under Settings, Suppressions.',
  suppressed_no_consent: 'The contact has to agree to the topic, by its link for preferences or a form of yours.',
  suppressed_capped: 'Send less, or allow more under Settings, Workspace.',
  suppressed_quota: 'A larger plan takes effect at once: Settings, Plan. Then send again.',
  suppressed_unverified: 'An owner opens the link in the verification mail; Settings, Account sends another.',
  suppressed_daily_limit: 'Send it again tomorrow, or ask the operator for a higher limit.',
  suppressed_erased: 'Nothing: whoever had their data erased is not written to again.',
  no_address: 'Add the address to the contact, then replay the run.',
  invalid_address: 'Correct the address on the contact, then replay the run.',
  template_error: 'Mend the template, then retry the run.',
  template_missing: 'Choose another template in the flow, activate it, and replay the run.',
  channel_not_configured: 'Set the channel up under Settings, Channels; then send again.',
  provider_rejected: 'Mend what the provider names, then send again.',
  provider_throttled: 'While it is queued it goes out by itself once the provider takes more. If it has failed, that took days: send it again.',
  provider_unreachable: 'While it is queued it goes out by itself once the provider answers. If it has failed, that took a day: send it again.',
  provider_misconfigured: 'Verify the channel under Settings, Channels; it says what is wrong.',
  recipient_deferred: 'While it is queued it is tried again. If it has failed, that took days: send it again, or ask for another address.',
  recipients_refused: 'Look at what the provider says, and verify the channel under Settings, Channels.',
  sending_paused: 'Settings, Workspace resumes it.',
  broadcast_paused: 'Resume the broadcast.',
  broadcast_cancelled: 'Make a new broadcast to whom it did not reach, if it is still wanted.',
  scheduled: 'Nothing: it leaves at its time.',
  quiet_hours: 'Nothing: it leaves when they end. Settings, Workspace has the hours.',
  bounced_hard: 'Ask the person for another address.',
  bounced_soft: 'Send it again if it is still wanted. Ask for another address if that goes on.',
  complained: 'Do not write to this address again.',
  outcome_unknown: LOOK,
  worker_lost: LOOK,
  restored: LOOK,
  found_arrived: 'Nothing: it arrived.',
  found_lost: 'Send it again if it is still wanted.',
  arrived_before: 'Nothing: it has arrived, so it was not sent again.',
  data_too_large: 'Hand over less data in the flow, activate it, and replay the run.',
  outputs_too_large: 'Have the servers that the flow calls answer with less, or split the flow, activate it, and replay the run.',
  http_status: 'Look at the answer in the step’s record, and mend the request or the server.',
  http_invalid: 'Mend the step’s templates, activate the flow, and replay the run.',
  http_refused: 'Give the step an address on the public internet, or ask the operator to allow this one.',
  http_unreachable: 'Check the address and the server, then retry the run.',
  http_timeout: 'Ask the server’s owner whether the request was processed before you repeat it.',
  http_broken: 'Ask the server’s owner whether the request was processed before you repeat it.',
  time_unreadable: 'Mend the path or the value it reads, and replay the run.',
  condition_false: 'Nothing, if that is what you meant. The record below shows what was compared with what.',
  already_true: 'Nothing: what it waits for was so already.',
  timed_out: 'Nothing, if that is what you meant; a longer time gives more people the chance.',
  throttled: 'Nothing, if that is what you meant; the step says how often it allows.',
  time_passed: 'Nothing, if that is what you meant. Look at the path of the time if it was not.',
  tag_empty: 'Mend the template of the tag, or give the value a default.',
  nothing_to_change: 'Mend the templates of the values, or give them defaults.',
  change_refused: 'The record says which value; mend it in the flow or at its source.',
  start_refused: 'Activate the flow that it starts, then replay the run.',
  chain_too_long: 'Look for flows that start one another in a circle.',
  chain_too_wide: 'Look for a flow that starts several others, which do the same.',
  step_missing: 'Activate the flow as it is now, then start a run by hand.',
  definition_archived: 'Duplicate the flow, activate the copy, and start a run of it by hand.',
  contact_erased: 'Nothing: erasing somebody ends what is under way for them.',
  reentry_refused: 'Nothing, if that is what you meant; under its trigger the flow says how often it lets somebody through.',
  too_many_bounces: 'Look at the addresses that bounced: a list that is old or bought bounces. Resume it when they are out.',
  too_many_complaints: 'Ask yourself whether these people asked for it. Resuming it puts the sender’s name at risk.',
  nobody_reachable: 'Look at the counts of who is left out, and why.',
  cancelled: 'Replay starts a new run from the beginning.',
  visit_limit: 'Look for a loop in the flow.',
  simulation_limit: 'Nothing: a real run would go on. Simulate a shorter way.',
  poisoned: 'Tell the operator: the log of the worker has the cause.',
}

/** What to do about an explanation, where its record has no reason of its own. */
export const EXPLAINED: Partial<Record<Schemas['Explaining']['code'], string>> = {
  not_active: 'Activate the flow, or a duplicate of one that is archived.',
  no_event: 'Look whether its sender sends at all, and whether the trigger looks for the address in the right place.',
  event_started_nothing: 'Start a run by hand if it is still wanted.',
  refused_signature: 'Give the sender the current secret, then retry the request.',
  refused_inactive: 'Activate the flow, then retry the request; of one that is archived, send it to a duplicate.',
  refused_no_contact: 'Make the contact, or let the trigger make it, then retry the request.',
  refused_request: 'Mend what its detail names, then retry the request.',
  refused_unreadable: 'See whether it was about this contact; mend the path, then retry it.',
  missed_inactive: 'Start a run by hand if it is still wanted.',
  missed_restored: 'Look whether it got what the run would have sent; if not, start a run by hand.',
  missed_late: 'Start a run by hand if it is still wanted; ask the operator why no worker was up.',
  run_failed: 'Mend what the step names, then retry the run.',
}

/** What to do about somebody who is in the audience of a broadcast and gets nothing. */
export const EXCLUDED: Record<string, string> = {
  no_address: 'Add the address to the contact; the next broadcast reaches it.',
  suppressed: 'The contact’s page says why, and who can lift it.',
  unsubscribed: 'Only the contact can opt in again.',
  no_consent: 'The contact has to agree to the topic, by its link for preferences or a form of yours.',
  capped: 'Send less, or allow more under Settings, Workspace.',
}

/** A sentence that follows from the status of a message, where there is no better reason. */
export const MEANING: Record<string, string> = {
  QUEUED: 'It waits for its turn to be sent.',
  SENDING: 'It is being handed to the provider.',
  SENT: 'The provider has taken it.',
  DELIVERED: 'The provider reports that it arrived.',
  FAILED: 'It was not sent.',
  BOUNCED: 'It came back: the address does not take it.',
  COMPLAINED: 'The recipient called it spam.',
  SUPPRESSED: 'It was not sent, because it must not be. The reason says why.',
  UNKNOWN: 'It is not known whether it arrived, so it is not sent again by itself. Look in the provider’s log, then record what you found.',
}

export const KINDS: Record<string, string> = {
  trigger: 'Trigger', send_message: 'Send a message', wait: 'Wait', wait_for: 'Wait for', branch: 'Branch', split: 'Split',
  throttle: 'Throttle', start_workflow: 'Start a workflow', update_contact: 'Update the contact', add_tag: 'Add a tag',
  remove_tag: 'Remove a tag', http_request: 'HTTP request', exit: 'Exit',
}

/** How a condition compares, in its form and in what came of it. */
export const OPERATORS: Record<string, string> = {
  eq: 'is', ne: 'is there, and is not', gt: 'is more than', gte: 'is at least', lt: 'is less than', lte: 'is at most', in: 'is one of', contains: 'contains',
  starts_with: 'begins with', ends_with: 'ends with', exists: 'is there', before: 'is before', after: 'is after', within_last: 'is within the last',
}

export const SOURCES: Record<string, string> = {
  inbound_webhook: 'a webhook', manual: 'by hand or by another flow', contact_created: 'a new contact', tag_added: 'a tag', event: 'an event of the contact',
  segment_entered: 'entering a segment', segment_left: 'leaving a segment', date: 'a date of the contact', schedule: 'a schedule',
}

export const CHANNELS = { email: 'Email', sms: 'SMS', whatsapp: 'WhatsApp' }

/** Why a provider is left alone for a while, and what to do about it. */
export const WAITED_FOR: Record<Schemas['ProviderTrouble']['code'], string> = {
  provider_throttled: 'takes no more for now. They go out by themselves once it does',
  provider_unreachable: 'does not answer. They go out by themselves once it does; its own status page may say more',
  provider_misconfigured: 'refuses the credentials or the sender. Verify the channel',
  recipients_refused: 'refuses so many addresses as unknown that it may be at fault. Look at what it says, and verify the channel',
}
