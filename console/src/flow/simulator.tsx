// The simulator: a request that came or is written here, played on the canvas along a virtual clock.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { api, byId, exactly, got, sent, type Schemas } from '../api'
import { fields, useAct, useDraft, useLoaded } from '../data'
import { local } from '../days'
import { errorsIn, moved } from '../errors'
import { objectOf, parse, pretty, textOf } from '../exact'
import { meant, Whom, type Kind } from '../names'
import { Preview } from '../preview'
import { Refusal } from '../session'
import { useCan } from '../me'
import { Button, Changes, clock, Field, Form, Json as Tree, JsonText, plural, Refused, Status } from '../ui'
import { Approved } from '../screens/messages'
import { Decision, Passed, Why } from '../screens/runs'
import { NOTHING, linkKey, type Played } from './canvas'
import { inputOf } from './input'
import { written, type Doc, type Json } from './model'
import { Cases, type Case } from './cases'

type Trace = Schemas['Simulation']
type Step = Trace['steps'][number]

const MOST_OPEN = 5 // mails of one trace: each is a page of its own
const MASKED = /"••••"/g // a credential that only the service knows; a simulated call needs none

/** `P1DT4H` in words: how long after the start. */
export function since(start: string, at: string): string {
  let minutes = Math.round((Date.parse(at) - Date.parse(start)) / 60_000)
  if (minutes <= 0) return 'at the start'
  const parts = (
    [
      ['day', 1440],
      ['hour', 60],
      ['minute', 1],
    ] as const
  ).flatMap(([unit, size]) => {
    const count = Math.floor(minutes / size)
    minutes -= count * size
    return count ? [plural(count, unit)] : []
  })
  return `after ${parts.slice(0, 2).join(' ')}`
}

/** What the canvas shows at a moment: who has passed where, and where the run is. */
function played(trace: Trace, frame: number, entry: string): Played {
  const states = new Map<string, 'passed' | 'here' | 'failed'>(),
    walked = new Set<string>()
  trace.steps.slice(0, frame + 1).forEach((step, index) => {
    const isHere = index === frame && frame < trace.steps.length
    states.set(step.nodeId, isHere ? 'here' : step.status === 'FAILED' ? 'failed' : 'passed')
    if (!isHere && step.port) walked.add(linkKey({ source: step.nodeId, port: step.port, target: '' }))
  })
  if (trace.steps.length) walked.add(linkKey({ source: entry, port: 'next', target: '' }))
  return { states, walked }
}

/** What no field of its own gives stands in that of all else. */
function refused(error: unknown): never {
  throw error instanceof Refusal
    ? moved(error, at => (/^\/(trigger|contactId|startAt|more|definition)(\/|$)/.test(at) ? at : `/more${at}`))
    : error
}

/** What a run walks, wherever its boxes stand. */
const walked = (doc: Doc) =>
  JSON.stringify({ ...written(doc), name: '', casesGate: false }, (name, value) =>
    name === 'position' ? undefined : value,
  )

/** An event that has an address where the trigger looks for one. */
function event({ trigger }: Doc): string {
  const { source, contactLookup: lookup } = trigger
  const path = textOf(trigger.contactPath ?? lookup)
  if (source !== 'inbound_webhook' || (lookup !== 'email' && lookup !== 'phone')) return '{}'
  return pretty(
    path
      .split('.')
      .reduceRight<unknown>(
        (inner, name) => ({ [name]: inner }),
        lookup === 'email' ? 'ada@example.com' : '+14155550123',
      ),
  )
}

export function Simulator({
  of,
  id,
  tag,
  doc,
  edit,
  isChanged,
  entry,
  play,
  pick,
}: {
  of: Kind
  id: string
  tag: string
  doc: Doc
  edit: ((doc: Doc) => void) | null
  isChanged: boolean
  entry: string
  play: (played: Played) => void
  pick: (id: string) => void
}) {
  const [draft, change] = useDraft(`simulate.${id}`, { trigger: event(doc), contact: '', startAt: '', more: '' })
  const field = fields(draft, change)
  const [trace, setTrace] = useState<Trace | null>(null)
  const [simulated, setSimulated] = useState('')
  const [asked, setAsked] = useState<{ path: string; body: Json } | null>(null)
  const [frame, setFrame] = useState(0)
  const [running, setRunning] = useState(false)
  const top = useRef<HTMLDivElement>(null)
  const last = trace?.steps.length ?? 0
  const mails = trace?.steps.filter(step => step.message).length ?? 0
  const isOld = trace !== null && walked(doc) !== simulated
  const shown = useMemo(() => (trace && !isOld ? played(trace, frame, entry) : NOTHING), [trace, isOld, frame, entry])
  useEffect(() => play(shown), [shown])
  useEffect(() => () => play(NOTHING), [])
  useEffect(() => {
    if (!running) return
    const timer = setInterval(() => setFrame(old => Math.min(old + 1, last)), 800)
    return () => clearInterval(timer)
  }, [running, last])
  useEffect(() => {
    if (frame >= last) setRunning(false)
  }, [frame, last])
  const simulate = async () => {
    const given = {
      ...objectOf(draft.more, '/more'),
      trigger: objectOf(draft.trigger, '/trigger'),
      ...(draft.startAt.trim() ? { startAt: draft.startAt.trim() } : {}),
      ...(draft.contact.trim() ? { contactId: await meant(draft.contact) } : {}),
    }
    const definition = isChanged
      ? { definition: parse(JSON.stringify(written(doc)).replace(MASKED, '"masked"')) as Json }
      : {}
    const path = isChanged ? `/${of}/simulate?id=${id}` : `/${of}/${id}/simulate`
    const body = { ...given, ...definition }
    const { value: answer } = await exactly<Trace>(path, sent('POST', body))
    setAsked(answer.end && { path, body: { ...body, startAt: answer.startAt } })
    setSimulated(walked(doc))
    setTrace(answer)
    setFrame(answer.steps.length)
    requestAnimationFrame(() => {
      top.current?.scrollIntoView({ block: 'nearest' })
      if (!trace) top.current?.focus({ preventScroll: true }) // the form is folded away
    })
  }
  const opened = ({ given }: Case) => {
    change(inputOf(given))
    setTrace(null)
    setAsked(null)
  }
  return (
    <>
      <div id="trace" ref={top} tabIndex={-1} />
      {isOld && (
        <p class="note" role="status">
          The flow has changed: simulate it again.
        </p>
      )}
      {trace &&
        (trace.end === null ? (
          <div class="refused" role="alert">
            <p>It cannot run like this:</p>
            <ul>
              {errorsIn(trace.findings).map(each => (
                <li key={each.pointer + each.code}>
                  <code>{each.pointer}</code> {each.message}
                </li>
              ))}
            </ul>
          </div>
        ) : (
          <div class="trace">
            <p class="verdict" role="status">
              <Status value={trace.end.status} /> {since(trace.startAt, trace.end.at)}
              {trace.end.reason?.detail && `: ${trace.end.reason.detail}`}
            </p>
            <label class="clock">
              Virtual time
              <input
                type="range"
                min={0}
                max={last}
                value={frame}
                onInput={event => setFrame(Number(event.currentTarget.value))}
                aria-valuetext={spoken(trace, frame)}
              />
            </label>
            <p class="buttons">
              <Button
                small
                onClick={() => {
                  if (frame >= last) setFrame(0)
                  setRunning(!running)
                }}
              >
                {running ? 'Stop' : 'Play'}
              </Button>
              <Button small disabled={frame === 0} onClick={() => setFrame(frame - 1)}>
                Back
              </Button>
              <Button small disabled={frame >= last} onClick={() => setFrame(frame + 1)}>
                Forward
              </Button>
              <span class="soft">{spoken(trace, frame)}</span>
            </p>
            <ol class="way">
              {trace.steps.slice(0, frame + 1).map((step, index) => (
                <Simulated key={index} step={step} start={trace.startAt} pick={pick} isOpen={mails <= MOST_OPEN} />
              ))}
            </ol>
          </div>
        ))}
      <details class="given" open={!trace} key={trace ? 'after' : 'before'}>
        <summary>{trace ? 'Edit input' : 'Input'}</summary>
        <Form label="Simulate" submit={() => simulate().catch(refused)}>
          <p class="hint">Nothing is written or sent. Time is virtual, so waits end at once.</p>
          <Recorded of={of} id={id} pick={trigger => change({ trigger })} />
          <JsonText label="Event (JSON)" rows={7} {...field('trigger')} />
          <Whom {...field('contact')} hint="Empty: whom the event is about or would create." />
          <Field
            label="Start at"
            type="datetime-local"
            value={local(draft.startAt)}
            set={at => change({ startAt: at && new Date(at).toISOString() })}
            pointer="/startAt"
            hint="In your time zone. Empty: now."
          />
          <JsonText
            label="What else happens (JSON)"
            rows={3}
            {...field('more')}
            hint={
              <>
                Such as <code>{'{"events": [{"at": "P1D", "name": "paid"}], "outcomes": {"welcome": "failed"}}'}</code>,
                also <code>contact</code>, <code>httpAnswers</code>, <code>variants</code>.
              </>
            }
          />
        </Form>
      </details>
      <Cases
        key={tag} // what they came to is of this one
        of={of}
        id={id}
        asked={isOld ? null : asked}
        isChanged={isChanged}
        open={opened}
        gate={doc.casesGate}
        setGate={edit && (casesGate => edit({ ...doc, casesGate }))}
      />
    </>
  )
}

function spoken(trace: Trace, frame: number): string {
  const step = trace.steps[frame]
  if (!step) return `the end, ${since(trace.startAt, trace.end?.at ?? trace.startAt)}`
  return `step ${frame + 1} of ${trace.steps.length}: ${step.nodeId}, ${since(trace.startAt, step.enteredAt)}`
}

/** The mail in its frame, which is asked for once it is looked at. */
function Mail({ html, isOpen }: { html: string; isOpen: boolean }) {
  const [open, setOpen] = useState(isOpen)
  return (
    <details open={open} onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>Email</summary>
      {open && <Preview of={{ html }} />}
    </details>
  )
}

function Simulated({
  step,
  start,
  pick,
  isOpen,
}: {
  step: Step
  start: string
  pick: (id: string) => void
  isOpen: boolean
}) {
  const { message } = step
  const content = (message?.content ?? {}) as Record<string, string>
  return (
    <li class={step.status.toLowerCase()}>
      <Passed
        step={step}
        name={
          <Button class="plain" onClick={() => pick(step.nodeId)}>
            <code>{step.nodeId}</code>
          </Button>
        }
      >
        <span class="soft" title={step.enteredAt}>
          {since(start, step.enteredAt)}
          {step.leftAt &&
            step.leftAt !== step.enteredAt &&
            ` until ${since(start, step.leftAt).replace('after ', '')} after the start`}
        </span>
      </Passed>
      <Why reason={step.reason} />
      <Decision output={step.output} />
      {message && (
        <div class="card">
          <p>
            To <b>{message.to ?? 'nobody'}</b> via {message.channel} <Status value={message.status} />
          </p>
          {content.subject && (
            <p class="subject">
              <b>{content.subject}</b>
            </p>
          )}
          {content.html ? (
            <Mail html={content.html} isOpen={isOpen} />
          ) : content.text ? (
            <pre tabIndex={0}>{content.text}</pre>
          ) : (
            <Approved content={content} />
          )}
        </div>
      )}
      {step.changes && <Changes of={step.changes} />}
      {step.kind === 'http_request' && step.output && <Tree value={step.output} name="output" open={false} />}
    </li>
  )
}

/** Requests that came to the webhook, to be tried again with the flow as it is on the screen. */
function Recorded({ of, id, pick }: { of: Kind; id: string; pick: (body: string) => void }) {
  const may = useCan()('runs:read')
  const asked = { params: { path: { id }, query: { limit: 20 } } }
  const list = useLoaded(
    async () => (may ? (await got(api.GET(`/${of}/{id}/webhook-requests`, asked))).data : []),
    [of, id],
  )
  const act = useAct()
  if (!list.value?.length) return null
  return (
    <div class="field">
      <label>
        Use a received request
        <select
          value=""
          disabled={act.busy}
          onChange={event => {
            const chosen = event.currentTarget.value
            if (chosen)
              void act.run(async () => {
                const { body } = await got(api.GET('/webhook-requests/{id}', byId(chosen)))
                if (body === null) throw new Refusal(0, 'gone', 'The body of this request was not kept.')
                pick(body)
              })
          }}
        >
          <option value="">Latest {list.value.length}…</option>
          {list.value.map(each => (
            <option key={each.id} value={each.id} title={each.createdAt}>
              {clock(each.createdAt)}, {each.outcome.toLowerCase()}
              {each.detail ? `: ${each.detail.slice(0, 60)}` : ''}
            </option>
          ))}
        </select>
      </label>
      <Refused problem={act.problem} />
    </div>
  )
}
