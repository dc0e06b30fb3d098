// What to do about a reason: each code has a sentence, were it that there is nothing to do.
import type { Schemas } from './api'

const LOOK = 'Check the provider’s log, and record what you found on the message’s page. You can also send it again there.'

export const ADVICE: Record<string, string> = {
  suppressed_unsubscribed: 'Only the contact can opt in again.',
  suppressed_bounced: 'Correct the address, or lift the suppression on the contact if the address works again. Later messages then go out.',
  suppressed_complained: 'Do not write to this address again.',
  suppressed_max_wait: 'Send it again, or allow a longer wait in Settings → Workspace.',
  suppressed_answered: 'The contact has already answered about this topic and is not asked again.',
  suppressed_stopped: 'The recipient can reply START to get messages again.',
  suppressed_manual: 'An admin can lift it on the contact or in Settings → Suppressions.',
  suppressed_no_consent: 'The contact has to opt in to the topic, on their preferences page or in a form of yours.',
  suppressed_capped: 'Send less, or raise the limit in Settings → Workspace.',
  suppressed_quota: 'Upgrade in Settings → Plan, which takes effect at once; then send again.',
  suppressed_unverified: 'An owner has to open the link in the verification email. Settings → Account sends another.',
  suppressed_daily_limit: 'Send it again tomorrow, or ask the operator for a higher limit.',
  suppressed_erased: 'Nothing to do: people whose data was erased are not written to again.',
  no_address: 'Add the address to the contact, then replay the run.',
  invalid_address: 'Correct the address on the contact, then replay the run.',
  template_error: 'Fix the template, then retry the run.',
  template_missing: 'Choose another template in the flow, activate it, and replay the run.',
  channel_not_configured: 'Set up the channel in Settings → Channels, then send again.',
  provider_rejected: 'Fix what the provider names, then send again.',
  provider_throttled: 'While it is queued, it goes out by itself once the provider accepts more. If it has failed, it was tried for days: send it again.',
  provider_unreachable: 'While it is queued, it goes out by itself once the provider responds. If it has failed, it was tried for a day: send it again.',
  provider_misconfigured: 'Verify the channel in Settings → Channels to see what is wrong.',
  recipient_deferred: 'While it is queued, it is tried again. If it has failed, it was tried for days: send it again, or ask for another address.',
  recipients_refused: 'Check what the provider says, and verify the channel in Settings → Channels.',
  sending_paused: 'Resume sending in Settings → Workspace.',
  broadcast_paused: 'Resume the broadcast.',
  broadcast_cancelled: 'Create a new broadcast for those it did not reach, if it is still wanted.',
  scheduled: 'Nothing to do: it is sent at its scheduled time.',
  quiet_hours: 'Nothing to do: it is sent when quiet hours end. Settings → Workspace has them.',
  bounced_hard: 'Ask the contact for another address.',
  bounced_soft: 'Send it again if it is still wanted. If it keeps bouncing, ask for another address.',
  complained: 'Do not write to this address again.',
  outcome_unknown: LOOK,
  worker_lost: LOOK,
  restored: LOOK,
  found_arrived: 'Nothing to do: it arrived.',
  found_lost: 'Send it again if it is still wanted.',
  arrived_before: 'Nothing to do: it had already arrived, so it was not sent again.',
  data_too_large: 'Pass on less data in the flow, activate it, and replay the run.',
  outputs_too_large: 'Have the servers that the flow calls respond with less, or split the flow; activate it, and replay the run.',
  http_status: 'Look at the response in the step’s output, and fix the request or the server.',
  http_invalid: 'Fix the step’s templates, activate the flow, and replay the run.',
  http_refused: 'Use an address on the public internet, or ask the operator to allow this one.',
  http_unreachable: 'Check the address and the server, then retry the run.',
  http_timeout: 'Ask the server’s owner whether the request was processed before you repeat it.',
  http_broken: 'Ask the server’s owner whether the request was processed before you repeat it.',
  time_unreadable: 'Fix the path or the value it reads, and replay the run.',
  condition_false: 'Nothing to do, if this is intended. The output below shows what was compared.',
  already_true: 'Nothing to do: what it waits for was already true.',
  timed_out: 'Nothing to do, if this is intended; a longer timeout gives more people a chance.',
  throttled: 'Nothing to do, if this is intended; the step says how often it lets contacts through.',
  time_passed: 'Nothing to do, if this is intended. If not, check the path of the time.',
  tag_empty: 'Fix the tag’s template, or give the value a default.',
  nothing_to_change: 'Fix the templates of the values, or give them defaults.',
  change_refused: 'The output says which value; fix it in the flow or at its source.',
  start_refused: 'Activate the flow that it starts, then replay the run.',
  chain_too_long: 'Look for flows that start each other in a loop.',
  chain_too_wide: 'Look for a flow that starts several others that do the same.',
  step_missing: 'Activate the flow as it is now, then start a run manually.',
  definition_archived: 'Duplicate the flow, activate the copy, and start a run of it manually.',
  contact_erased: 'Nothing to do: erasing a contact ends their runs.',
  reentry_refused: 'Nothing to do, if this is intended; the flow’s trigger says how often a contact may go through.',
  too_many_bounces: 'Check the addresses that bounced: old or bought lists bounce. Resume once they are removed.',
  too_many_complaints: 'Consider whether these people asked for it. Resuming puts the sender’s reputation at risk.',
  nobody_reachable: 'The counts show who is left out, and why.',
  audience_not_counted: 'Check in the settings how many messages are left this month, or divide the audience.',
  send_at_passed: 'Edit it, and choose another time, or none to send it at once.',
  cancelled: 'Replay starts a new run from the beginning.',
  visit_limit: 'Look for a loop in the flow.',
  simulation_limit: 'Nothing to do: a real run would continue. Simulate a shorter path.',
  poisoned: 'Tell the operator: the worker’s log has the cause.',
}

/** What to do about an explanation, where its record has no reason of its own. */
export const EXPLAINED: Partial<Record<Schemas['Explaining']['code'], string>> = {
  not_active: 'Activate the flow, or a duplicate of one that is archived.',
  no_event: 'Check whether its sender sends at all, and whether the trigger looks for the address in the right place.',
  event_started_nothing: 'Start a run manually if it is still wanted.',
  refused_signature: 'Give the sender the current secret, then retry the request.',
  refused_inactive: 'Activate the flow, then retry the request. If it is archived, send it to a duplicate.',
  refused_no_contact: 'Create the contact, or let the trigger create it, then retry the request.',
  refused_request: 'Fix what its detail names, then retry the request.',
  refused_unreadable: 'Check whether it was about this contact; fix the path, then retry it.',
  given_up: 'Do what the sentence says; if it happens again, ask the operator for the log.',
  missed_inactive: 'Start a run manually if it is still wanted.',
  missed_filling: 'Start a run manually if it is still wanted.',
  missed_restored: 'Check whether they got what the run would have sent; if not, start a run manually.',
  missed_late: 'Start a run manually if it is still wanted; ask the operator why no worker was up.',
  run_failed: 'Fix what the step names, then retry the run.',
}

/** What to do about somebody who is in the audience of a broadcast and gets nothing. */
export const EXCLUDED: Record<string, string> = {
  no_address: 'Add the address to the contact; the next broadcast reaches them.',
  suppressed: 'The contact’s page says why, and who can lift it.',
  unsubscribed: 'Only the contact can opt in again.',
  no_consent: 'The contact has to opt in to the topic, on their preferences page or in a form of yours.',
  capped: 'Send less, or raise the limit in Settings → Workspace.',
}

/** A sentence that follows from the status of a message, where there is no better reason. */
export const MEANING: Record<string, string> = {
  QUEUED: 'Waiting to be sent.',
  SENDING: 'Being handed to the provider.',
  SENT: 'The provider accepted it.',
  DELIVERED: 'The provider reports that it was delivered.',
  FAILED: 'It was not sent.',
  BOUNCED: 'It bounced: the address does not accept it.',
  COMPLAINED: 'The recipient marked it as spam.',
  SUPPRESSED: 'It was not sent because it must not be. The reason says why.',
  UNKNOWN: 'It is not known whether it arrived, so it is not sent again automatically. Check the provider’s log, then record what you found.',
}

export const KINDS: Record<string, string> = {
  trigger: 'Trigger', send_message: 'Send message', wait: 'Wait', wait_for: 'Wait for', branch: 'Branch', split: 'Split',
  throttle: 'Throttle', start_workflow: 'Start workflow', update_contact: 'Update contact', add_tag: 'Add tag',
  remove_tag: 'Remove tag', http_request: 'HTTP request', exit: 'Exit',
}

/** How a condition compares, in its form and in what came of it. */
export const OPERATORS: Record<string, string> = {
  eq: 'is', ne: 'exists and is not', gt: 'is more than', gte: 'is at least', lt: 'is less than', lte: 'is at most', in: 'is one of', contains: 'contains',
  starts_with: 'starts with', ends_with: 'ends with', exists: 'exists', before: 'is before', after: 'is after', within_last: 'is within the last',
}

export const SOURCES: Record<string, string> = {
  inbound_webhook: 'a webhook', manual: 'a member or another flow', contact_created: 'a new contact', tag_added: 'a tag', event: 'a contact event',
  segment_entered: 'entering a segment', segment_left: 'leaving a segment', date: 'a date of the contact', schedule: 'a schedule',
}

export const CHANNELS = { email: 'Email', sms: 'SMS', whatsapp: 'WhatsApp' }

/** Why a provider is left alone for a while, and what to do about it. */
export const WAITED_FOR: Record<Schemas['ProviderTrouble']['code'], string> = {
  provider_throttled: 'accepts no more for now. They go out by themselves once it does',
  provider_unreachable: 'does not respond. They go out by themselves once it does; its status page may say more',
  provider_misconfigured: 'rejects the credentials or the sender. Verify the channel',
  recipients_refused: 'rejects so many addresses as unknown that it may be at fault. Check what it says, and verify the channel',
}
