// Runs: what happened to each event, step by step, and why.
import { useEffect, useRef } from 'preact/hooks'
import { api, byId, exactly, got, type Schemas } from '../api'
import { useLoaded, type Listed, type Loaded } from '../data'
import { Days } from '../days'
import { ListScreen, useNarrowed } from '../lists'
import { useCan } from '../me'
import {
  ContactLink,
  FlowLink,
  options,
  useContactNames,
  useFlowChoice,
  useFlowNames,
  useFlows,
  useSegmentNames,
  type FlowName,
} from '../names'
import { go, useFilter } from '../router'
import { ADVICE, KINDS, OPERATORS } from '../words'
import {
  Choice,
  Confirm,
  Facts,
  Json,
  Link,
  Screen,
  Search,
  Section,
  Sentence,
  Shown,
  Status,
  When,
  plural,
  type Tabled,
} from '../ui'
import { MessageCard } from './messages'

type Run = Schemas['Run']
type Step = Run['steps'][number]
export type Reason = { code?: string | null; detail?: string | null } | null

const RUNNING = ['QUEUED', 'RUNNING']
export const STATUSES = ['QUEUED', 'RUNNING', 'WAITING', 'COMPLETED', 'FAILED', 'CANCELLED'] as const
const TROUBLES = ['FAILED', 'BOUNCED', 'SUPPRESSED', 'UNKNOWN'] as const

export function Why({ reason }: { reason: Reason }) {
  if (!reason) return null
  const advice = reason.code ? ADVICE[reason.code] : undefined
  return (
    <p class="why">
      <Sentence text={reason.detail ?? reason.code ?? ''} />
      {advice && (
        <>
          {' '}
          <b>{advice}</b>
        </>
      )}
    </p>
  )
}

type Awaited = { kind?: string; until?: string | null; events?: string[]; segments?: string[]; contact?: boolean }
const MOVE = /^(entered|left) (.*)$/ // a segment

/** What a run waits for and until when, in a sentence, in which segments are nameless unless they are to be named. */
export function waiting(for_: Record<string, unknown> | null | undefined, isNaming = false): string {
  if (!for_) return ''
  const { kind, until, events = [], segments = [], contact } = for_ as Awaited
  const move = (_: string, way: string, id: string) =>
    `for the contact to ${way === 'left' ? 'leave' : 'enter'} ${isNaming ? `the segment ${id}` : 'a segment'}`
  const whats =
    kind === 'http'
      ? ['for an HTTP answer']
      : kind === 'delivery'
        ? ['for the outcome of its message']
        : kind === 'time'
          ? []
          : [
              ...events.map(each => `for the event ${each}`),
              ...segments.map(each => each.replace(MOVE, move)),
              ...(contact ? ['for a change of the contact'] : []),
            ]
  return `Waiting${whats.length ? ` ${whats.join(', or ')}` : ''}${until ? `${whats.length ? ',' : ''} until ${until}${whats.length ? ' at the latest' : ''}` : ''}`
}

const SEGMENTS = /(?:(?:\bthe )?\bsegment |(?<=\b(?:into|from) ))(seg_\w+)/g // as the service and `waiting` name them

/** A sentence in which a segment that has no name, or none yet, is not called by its id. */
export const nameless = (text: string, names: ReadonlyMap<string, string>) =>
  text.replace(SEGMENTS, (whole, id: string) => ((names.get(id) ?? id) === id ? 'a segment' : whole))

/** What shows one of these sentences with the names of its segments, which are asked for all at once. */
export function useNaming(texts: readonly string[]) {
  const names = useSegmentNames(texts.flatMap(text => [...text.matchAll(SEGMENTS)].map(([, id]) => id!)))
  return (text: string) => <Sentence text={nameless(text, names)} names={names} />
}

export function Runs() {
  const flow = useFilter('flow')
  const all = useFlowChoice(flow)
  const list = useNarrowed(
    '/runs',
    asked => {
      const of = flow.startsWith('wf') ? { workflowId: flow } : flow ? { automationId: flow } : {}
      return api.GET('/runs', { params: { query: { ...asked, ...of } } })
    },
    ['status', 'messageStatus', 'contactId'],
    5000,
  )
  return (
    <ListScreen
      title="Runs"
      lead="Every accepted event starts a run; see what became of each."
      filters={
        <>
          <Choice name="status" options={STATUSES} />
          <Choice label="Message" name="messageStatus" options={TROUBLES} />
          <Choice name="flow" options={options(all)} growing={all} />
        </>
      }
      more={
        <>
          <Search label="Contact" name="contactId" placeholder="address, name or ID" />
          <Days />
        </>
      }
      empty={
        <>
          A run starts when an event arrives at a flow’s webhook, or manually on a <Link to="/flows">flow</Link>.
        </>
      }
      {...useRunTable(list, all)}
    />
  )
}

/** What a table of runs shows, with the names of their flows, which are looked for in `all`, and contacts. */
export function useRunTable(of: Listed<Schemas['RunSummary']>, all: Listed<FlowName>): Tabled<Schemas['RunSummary']> {
  const flows = useFlowNames(all, of.rows ?? [])
  const names = useContactNames((of.rows ?? []).map(run => run.contactId))
  return {
    of,
    columns: [
      [
        'Started',
        run => (
          <Link to={`/runs/${run.id}`}>
            <When at={run.createdAt} />
          </Link>
        ),
      ],
      ['Status', run => <Status value={run.status} />],
      ['Flow', run => <FlowLink run={run} names={flows} />],
      ['Contact', run => <ContactLink id={run.contactId} names={names} />],
      ['Reason', run => <Sentence text={run.reason?.detail ?? waiting(run.waitingFor)} />, 'wide'],
    ],
  }
}

const pause = (run: Run) =>
  RUNNING.includes(run.status)
    ? 1000
    : run.status === 'WAITING' ||
        run.steps.some(step => step.message && ['QUEUED', 'SENDING', 'SENT'].includes(step.message.status))
      ? 4000
      : 0

export function Run({ id }: { id: string }) {
  const run = useLoaded(async () => (await exactly<Run>(`/runs/${encodeURIComponent(id)}`)).value, [id], pause)
  const flows = useFlowNames(useFlows(), run.value ? [run.value] : [])
  const names = useContactNames([run.value?.contactId ?? null])
  const naming = useNaming([waiting(run.value?.waitingFor, true)])
  const drawn = useDrawing(run.value ?? {}, id, run.value ? run.value.stepsOmitted + run.value.steps.length : undefined)
  const isGone = drawn.problem?.status === 404 // what a run walked is gone with its flow
  const may = useCan()('runs:write')
  const path = byId(id)
  return (
    <Screen
      title="Run"
      id={id}
      actions={
        run.value &&
        may && (
          <>
            {run.value.status === 'FAILED' && (
              <Confirm
                label="Retry"
                title="Retry this run?"
                act={() => got(api.POST('/runs/{id}/retry', path)).then(run.reload)}
              >
                <p>
                  It enters the failed step again, in version {run.value.version} of its flow. What was already done is
                  not repeated.
                </p>
              </Confirm>
            )}
            {run.value.contactId && (
              <Confirm
                label="Replay"
                title="Replay this run?"
                act={async () => {
                  const { runId } = await got(api.POST('/runs/{id}/replay', path))
                  go(`/runs/${runId}`)
                }}
              >
                <p>
                  A new run starts with the same event and contact, in the current version of the flow. What this run
                  has sent is sent again.
                </p>
              </Confirm>
            )}
            {!run.value.finishedAt && (
              <Confirm
                label="Cancel run"
                danger
                title="Cancel this run?"
                leave="Keep run"
                act={() => got(api.POST('/runs/{id}/cancel', path)).then(run.reload)}
              >
                <p>It ends at its current step. Waiting messages are not sent; what is already being sent arrives.</p>
              </Confirm>
            )}
          </>
        )
      }
    >
      <Shown of={run}>
        {value => (
          <>
            <p class="verdict" aria-live="polite">
              <Status value={value.status} /> {naming(waiting(value.waitingFor, true))}
            </p>
            <Why reason={value.reason} />
            <Facts
              of={[
                [
                  'Flow',
                  <>
                    {isGone ? 'deleted' : <FlowLink run={value} names={flows} />}, version {value.version}
                  </>,
                ],
                ['Contact', <ContactLink id={value.contactId} names={names} />],
                ['Received', <When at={value.createdAt} />],
                ['Finished', <When at={value.finishedAt} none="not yet" />],
              ]}
            />
            <Section title="Path taken">
              {omitted(value) && <p class="hint">{omitted(value)}</p>}
              {value.steps.length === 0 ? (
                <p class="empty">No step reached yet.</p>
              ) : (
                <ol class="way">
                  {value.steps.map(step => (
                    <StepItem key={`${step.nodeId}/${step.visit}`} step={step} reload={run.reload} />
                  ))}
                </ol>
              )}
            </Section>
            <Section title="Event">
              <Json value={value.trigger} />
            </Section>
            {isGone ? (
              <p class="empty">Its flow was deleted, so there is no diagram.</p>
            ) : (
              <Drawing title="Diagram" of={drawn} />
            )}
          </>
        )}
      </Shown>
    </Screen>
  )
}

/** What the page does not have of a long run. */
export function omitted({ stepsOmitted, outputsOmitted }: Pick<Run, 'stepsOmitted' | 'outputsOmitted'>): string {
  const steps = stepsOmitted
    ? `Its first ${stepsOmitted === 1 ? 'step is' : `${stepsOmitted.toLocaleString()} steps are`} not shown. `
    : ''
  return (
    steps +
    (outputsOmitted
      ? `The output of ${plural(outputsOmitted, 'step')} is not shown: that of later ones has 2 MiB already.`
      : '')
  )
}

/** A step, how it went, and which way it took. */
export const Passed = ({
  step: { kind, visit, status, port },
  name,
  children,
}: {
  step: Pick<Step, 'kind' | 'visit' | 'status' | 'port'>
  name: preact.JSX.Element
  children: preact.JSX.Element
}) => (
  <div class="step">
    <b>{KINDS[kind] ?? kind}</b> {name}
    {visit > 1 && <> visit {visit}</>} <Status value={status} />
    {port && port !== 'next' && (
      <span>
        {' '}
        took <b>{port}</b>
      </span>
    )}{' '}
    {children}
  </div>
)

function StepItem({ step, reload }: { step: Step; reload: () => Promise<void> }) {
  const item = useRef<HTMLLIElement>(null)
  const isMeant = useFilter('step') === step.nodeId // by whoever leads here
  useEffect(() => {
    if (isMeant) item.current?.scrollIntoView({ block: 'center' })
  }, [isMeant])
  return (
    <li ref={item} class={`${step.status.toLowerCase()} ${isMeant ? 'meant' : ''}`}>
      <Passed step={step} name={<code>{step.nodeId}</code>}>
        <span class="soft">
          <When at={step.finishedAt ?? step.startedAt} />
        </span>
      </Passed>
      <Why reason={step.reason} />
      {step.message && <MessageCard id={step.message.id} known={step.message.status} reload={reload} />}
      <Decision output={step.output} />
      {step.output != null && (!step.message || step.reason) && (
        <Json value={step.output} name="output" open={step.status === 'FAILED'} />
      )}
    </li>
  )
}

type Operand = { path?: string; op?: string; value?: unknown; found?: unknown; holds?: boolean }
type Case = { port?: string | undefined; holds?: boolean; operands?: Operand[] }

/** The cases that a branch tried, or the one that a wait came to. */
export function decided(output: unknown): Case[] {
  const { cases, port, operands } = (output ?? {}) as Case & { cases?: Case[] }
  return Array.isArray(cases)
    ? cases
    : Array.isArray(operands) && operands.length
      ? [{ port, holds: true, operands }]
      : []
}

/** A decision in sentences: what was compared with what was found. */
export function Decision({ output }: { output: unknown }) {
  const cases = decided(output)
  if (!cases.length) return null
  return (
    <ul class="plain">
      {cases.map((each, index) => (
        <li key={index}>
          <b>{each.port ?? `case ${index + 1}`}</b> {each.holds ? 'matches' : 'does not match'}:{' '}
          {(each.operands ?? []).map((one, at) => (
            <span key={at}>
              {at > 0 && '; '}
              <code>{one.path}</code> {OPERATORS[one.op ?? ''] ?? one.op}
              {one.value !== undefined && (
                <>
                  {' '}
                  <code>{JSON.stringify(one.value)}</code>
                </>
              )}
              : {one.holds ? 'true' : 'false'}, it was{' '}
              <code>{one.found === undefined ? 'missing' : JSON.stringify(one.found)}</code>
            </span>
          ))}
        </li>
      ))}
    </ul>
  )
}

type Drawn = { workflowId?: string | null; automationId?: string | null }

/** The flow as the service draws it, once it is known; with `runId`, the way of that run in its own version. */
export function useDrawing(
  { workflowId, automationId }: Drawn,
  runId?: string,
  moved?: number | string,
): Loaded<string> {
  const id = workflowId ?? automationId ?? ''
  const of = workflowId ? 'workflows' : 'automations'
  const path = { params: { path: { id }, query: { runId } }, parseAs: 'text' as const }
  return useLoaded(
    async () => (id ? String(await got<unknown>(api.GET(`/${of}/{id}/graph.svg`, path))) : ''),
    [id, runId, moved],
  )
}

export const Drawing = ({ title, of }: { title: string; of: Loaded<string> }) => (
  <Section title={title}>
    <Shown of={of}>
      {svg => (
        <div class="drawing" tabIndex={0} role="region" aria-label="Flow diagram">
          <img alt="The flow: its steps from top to bottom" src={`data:image/svg+xml,${encodeURIComponent(svg)}`} />
        </div>
      )}
    </Shown>
  </Section>
)
