// The workspace itself: its sender, what marketing it allows itself, whether it sends, and its end.
import { useState } from 'preact/hooks'
import { api, got, settled, tagged, type Schemas } from '../api'
import { fields, useAct, useDraft, useStored } from '../data'
import { same } from '../exact'
import { moved } from '../errors'
import { Length, spelled } from '../lengths'
import { useCan, useMe } from '../me'
import { leave } from '../session'
import { Check, Confirm, Facts, Field, Form, Section, Several, Shown, Zones, ZONES } from '../ui'
import { Unsaved } from '../unsaved'
import { CHANNELS, DAYS } from '../words'

export function Workspace() {
  const workspace = useStored(() => tagged(api.GET('/settings/workspace')), [])
  const may = useCan()('workspaces:write')
  return (
    <Shown of={workspace}>
      {({ value, tag }) => (
        <>
          <WorkspaceForm value={value} tag={tag} again={workspace.again} />
          {may && <Close of={value} />}
        </>
      )}
    </Shown>
  )
}

function Close({ of }: { of: Schemas['Workspace'] }) {
  const [name, setName] = useState('')
  return (
    <Section title="Delete workspace">
      <p>Everything in it stops, nothing more is sent, and soon all of its data is deleted.</p>
      <p class="buttons">
        <Confirm
          label="Delete workspace"
          danger
          title={`Delete ${of.name}?`}
          sure="Delete permanently"
          act={() => got(api.DELETE('/settings/workspace', { body: { name } })).then(leave)}
        >
          <p>
            Its contacts, flows, templates, messages and members are deleted with it, its keys stop working, and its
            paid plan ends. This cannot be undone. You are then signed out.
          </p>
          <Field
            label="Type the name of the workspace to confirm"
            value={name}
            set={setName}
            autocomplete="off"
            pointer="/name"
          />
        </Confirm>
      </p>
    </Section>
  )
}

const some = (chosen: readonly string[] | undefined, of: Record<string, string>, all: string) =>
  !chosen || chosen.length === Object.keys(of).length ? all : chosen.map(each => of[each] ?? each).join(', ')

/** What marketing waits for, in words. */
export const quiet = ({ from, to, timezone, channels, days, maxWait }: Schemas['QuietHours']): string =>
  `${from === to ? `a whole day from ${from}` : `${from} to ${to}`} in the ${timezone === 'workspace' ? 'workspace’s' : 'contact’s'} time zone, starting on ${some(days, DAYS, 'any day')}; on ${some(channels, CHANNELS, 'all channels')}. ${maxWait ? `Messages that would wait longer than ${spelled(maxWait)} are dropped.` : 'Nothing is dropped.'}`

const capped = ({ limit, window, channel }: Schemas['FrequencyCap']): string =>
  `at most ${limit.toLocaleString()} per contact within ${spelled(window)}, on ${channel ? CHANNELS[channel] : 'all channels together'}`

const drafted = (value: Schemas['Workspace']) => ({
  name: value.name,
  timezone: value.timezone,
  country: value.country ?? '',
  retentionDays: value.retentionDays === null ? '' : String(value.retentionDays),
  postalAddress: value.postalAddress ?? '',
  fromName: value.sender.fromName ?? '',
  fromEmail: value.sender.fromEmail ?? '',
  replyTo: value.sender.replyTo ?? '',
  sendingPaused: value.sendingPaused,
  mostMessages: value.frequencyCap ? String(value.frequencyCap.limit) : '',
  within: value.frequencyCap?.window ?? '',
  countedOn: value.frequencyCap?.channel ?? '',
  quietFrom: value.quietHours?.from ?? '',
  quietUntil: value.quietHours?.to ?? '',
  byClock: value.quietHours?.timezone ?? 'contact',
  maxWait: value.quietHours?.maxWait ?? '',
  quietOn: value.quietHours?.channels ?? Object.keys(CHANNELS),
  quietDays: value.quietHours?.days ?? Object.keys(DAYS),
})
type Draft = ReturnType<typeof drafted>

/** The field at which an error of all of it stands. */
const WHOLE: Record<string, string> = { '/frequencyCap': '/frequencyCap/limit', '/quietHours': '/quietHours/to' }

/** As the API takes them. */
function gates({
  mostMessages,
  within,
  countedOn,
  quietFrom,
  quietUntil,
  byClock,
  maxWait,
  quietOn,
  quietDays,
}: Draft) {
  return {
    frequencyCap:
      mostMessages || within ? { limit: Number(mostMessages), window: within, channel: countedOn || null } : null,
    quietHours:
      quietFrom || quietUntil
        ? {
            from: quietFrom,
            to: quietUntil,
            timezone: byClock,
            maxWait: maxWait || null,
            channels: quietOn,
            days: quietDays,
          }
        : null,
  }
}

function WorkspaceForm({
  value,
  tag,
  again,
}: {
  value: Schemas['Workspace']
  tag: string
  again: () => Promise<Schemas['Workspace']>
}) {
  const me = useMe()
  const may = useCan()('settings:write')
  const [draft, set, forget, held] = useDraft(`workspace.${value.id}`, drafted(value), tag)
  const field = fields(draft, set)
  const act = useAct()
  if (!may)
    return (
      <Facts
        of={[
          ['Name', value.name],
          ['Time zone', value.timezone],
          ['Country', value.country],
          ['Sending', value.sendingPaused ? 'paused' : 'on'],
          ['Marketing messages', value.frequencyCap ? capped(value.frequencyCap) : 'no limit'],
          ['Quiet hours', value.quietHours ? quiet(value.quietHours) : 'none'],
        ]}
      />
    )
  const problem = act.problem && moved(act.problem, at => WHOLE[at] ?? at)
  return (
    <>
      <Unsaved of={held} />
      <Form
        act={{ ...act, problem }}
        label="Save"
        success={held.isTyped ? '' : 'Saved.'}
        submit={async () => {
          await settled(
            got(
              api.PATCH('/settings/workspace', {
                headers: { 'If-Match': held.tag },
                body: {
                  name: draft.name,
                  timezone: draft.timezone,
                  country: draft.country || null,
                  retentionDays: draft.retentionDays ? Number(draft.retentionDays) : null,
                  postalAddress: draft.postalAddress || null,
                  sender: {
                    fromName: draft.fromName || null,
                    fromEmail: draft.fromEmail || null,
                    replyTo: draft.replyTo || null,
                  },
                  sendingPaused: draft.sendingPaused,
                  ...gates(draft),
                } as Schemas['WorkspacePatch'],
              }),
            ),
            async () => same(drafted(await again()), draft),
          )
          forget(drafted(await again()))
          await me.reload()
        }}
      >
        <div class="columns">
          <Field label="Name" required {...field('name')} />
          <Zones />
          <Field label="Time zone" required list={ZONES} {...field('timezone')} hint="Such as Europe/Berlin." />
          <Field
            label="Country"
            placeholder="DE"
            {...field('country')}
            hint="Two letters; phone numbers without a country code are read as of this country."
          />
          <Field
            label="Days to keep history"
            type="number"
            min="1"
            max="3650"
            {...field('retentionDays')}
            hint="Empty: the operator’s default."
          />
          <Field label="Sender name" {...field('fromName', '/sender/fromName')} />
          <Field label="Sender address" type="email" {...field('fromEmail', '/sender/fromEmail')} />
          <Field label="Reply-to address" type="email" {...field('replyTo', '/sender/replyTo')} />
        </div>
        <Field label="Postal address" rows={3} {...field('postalAddress')} hint="Marketing emails have to show one." />
        <fieldset class="group">
          <legend>Marketing</legend>
          <p class="hint">Across all flows and broadcasts. Other messages, such as receipts, always go out.</p>
          <div class="columns">
            <Field
              label="Messages per contact, at most"
              type="number"
              min="1"
              {...field('mostMessages', '/frequencyCap/limit')}
              hint="Empty: no limit."
            />
            <Length label="Within" {...field('within', '/frequencyCap/window')} />
            <Field
              label="Counted on"
              {...field('countedOn', '/frequencyCap/channel')}
              options={[
                ['', 'all channels'],
                ['email', 'email only'],
                ['sms', 'SMS only'],
                ['whatsapp', 'WhatsApp only'],
              ]}
            />
            <Field
              label="Quiet from"
              type="time"
              {...field('quietFrom', '/quietHours/from')}
              hint="Messages wait until quiet hours end."
            />
            <Field
              label="Quiet until"
              type="time"
              {...field('quietUntil', '/quietHours/to')}
              hint="The same time as above: the whole day."
            />
            <Field
              label="In whose time zone"
              {...field('byClock', '/quietHours/timezone')}
              options={[
                ['contact', 'the contact’s'],
                ['workspace', 'the workspace’s'],
              ]}
            />
            <Length
              label="Drop messages that wait longer than"
              {...field('maxWait', '/quietHours/maxWait')}
              hint="Empty: nothing is dropped."
            />
          </div>
          <Several label="Quiet on" options={CHANNELS} {...field('quietOn', '/quietHours/channels')} />
          <Several label="Starting on" options={DAYS} {...field('quietDays', '/quietHours/days')} />
        </fieldset>
        <Check label="Pause all sending: messages wait until you turn this off" {...field('sendingPaused')} />
      </Form>
    </>
  )
}
