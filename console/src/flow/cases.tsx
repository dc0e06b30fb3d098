// The cases of a flow: a simulation that is kept with what must come of it, and what comes of each now.
import { useState } from 'preact/hooks'
import { api, byId, exactly, got, raw, sent, type Schemas } from '../api'
import { useAct, useDraft, useLoaded } from '../data'
import { useCan } from '../me'
import type { Kind } from '../names'
import { Refusal } from '../session'
import { Button, Check, Confirm, Field, Form, Refused, Section, Status } from '../ui'
import type { Json } from './model'

export type Case = Schemas['Case']
type Result = Schemas['CaseResult']

/** The name is in the path, where no pointer of the API leads. */
const misnamed = (message: string) => new Refusal(422, 'invalid', message, [{ pointer: '/name', message }])

/** Simulates it once more, from the moment at which it was, and keeps what came: with all its digits. */
async function keep(path: string, asked: Json, kept: string, isKnown: boolean): Promise<void> {
  const answer = (
    await exactly<{ case: { input: Json; expected: Json } | null }>(
      `${path}${path.includes('?') ? '&' : '?'}case=true`,
      sent('POST', asked),
    )
  ).value
  if (!answer.case) throw new Refusal(409, 'conflict', 'It can no longer run like this: simulate it again.')
  try {
    const body = { given: answer.case.input, expect: answer.case.expected }
    await raw(kept, sent('PUT', body, isKnown ? {} : { 'If-None-Match': '*' }))
  } catch (error) {
    if (error instanceof Refusal && error.status === 422 && !error.errors.length) throw misnamed(error.message)
    throw error
  }
}

/** `asked` is the simulation that is shown: its path, and the body that began it. `gate`: a case that fails prevents activation. */
export function Cases({
  of,
  id,
  asked,
  isChanged,
  open,
  gate,
  setGate,
}: {
  of: Kind
  id: string
  asked: { path: string; body: Json } | null
  isChanged: boolean
  open: (kept: Case) => void
  gate: boolean
  setGate: ((gate: boolean) => void) | null
}) {
  const path = byId(id)
  const list = useLoaded(async () => (await exactly<{ data: Case[] }>(`/${of}/${id}/cases`)).value.data, [of, id])
  const [{ name }, change, forget] = useDraft(`case.${id}`, { name: '' })
  const [results, setResults] = useState<Result[] | null>(null)
  const running = useAct()
  const may = useCan()(`${of}:write`)
  const rows = list.value ?? []
  const isKnown = rows.some(each => each.name === name.trim())
  const run = () => running.run(async () => setResults((await got(api.POST(`/${of}/{id}/cases/run`, path))).cases))
  const remove = async (gone: string) => {
    await got<unknown>(api.DELETE(`/${of}/{id}/cases/{name}`, { params: { path: { id, name: gone } } }))
    setResults(null)
    await list.reload()
  }
  const failed = results?.filter(each => !each.passes).length ?? 0
  return (
    <Section
      title="Cases"
      actions={
        rows.length > 0 && (
          <Button small disabled={running.busy} onClick={() => void run()}>
            Run cases
          </Button>
        )
      }
    >
      {may && asked && (
        <Form
          label={isKnown ? 'Replace case' : 'Save as case'}
          submit={async () => {
            if (name.includes('/')) throw misnamed('A name cannot have a slash.')
            await keep(asked.path, asked.body, `/${of}/${id}/cases/${encodeURIComponent(name.trim())}`, isKnown)
            forget()
            setResults(null)
            await list.reload()
          }}
        >
          <Field
            label="Case name"
            required
            value={name}
            set={name => change({ name })}
            pointer="/name"
            hint={isKnown ? 'It replaces the case of this name.' : 'Keeps the simulation and its result.'}
          />
        </Form>
      )}
      <Refused problem={list.problem} />
      <Refused problem={running.problem} />
      {results && (
        <p role="status">
          {`${results.length - failed} of ${results.length} cases pass.`}
          {isChanged && ' They ran with the saved flow.'}
        </p>
      )}
      <Check label="Activate only if all cases pass" value={gate} set={on => setGate?.(on)} disabled={!setGate} />
      {rows.length > 0 ? (
        <ul class="plain cases">
          {rows.map(each => {
            const result = results?.find(one => one.name === each.name)
            return (
              <li key={each.name}>
                <p>
                  <Button class="plain" title="Fill in its input" onClick={() => open(each)}>
                    {each.name}
                  </Button>{' '}
                  {result && <Status value={result.passes ? 'PASSED' : 'FAILED'} />}
                </p>
                {result?.difference && <p class="why">{result.difference}</p>}
                {may && (
                  <Confirm label="Delete" danger title={`Delete case ${each.name}?`} act={() => remove(each.name)}>
                    <p>It is no longer run when the flow is checked or activated.</p>
                  </Confirm>
                )}
              </li>
            )
          })}
        </ul>
      ) : (
        list.value && (
          <p class="empty">
            No cases yet.{' '}
            {may
              ? 'Simulate, then save it as a case: every check then says if the result changes.'
              : 'Members who can edit this flow can save a simulation as one.'}
          </p>
        )
      )}
    </Section>
  )
}
