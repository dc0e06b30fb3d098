// JSON whose numbers keep the digits that they were written with, as the service keeps them.
import { Refusal } from './session'

type Source = { source?: string }
const exact = JSON as unknown as { rawJSON?: (text: string) => object; isRawJSON?: (value: unknown) => boolean }

const keep = (_name: string, value: unknown, context?: Source) =>
  (typeof value === 'number' && context?.source !== undefined && String(value) !== context.source && exact.rawJSON ? exact.rawJSON(context.source) : value)

/** As JSON.parse; a number that JavaScript would write otherwise becomes an object that JSON.stringify writes as it was. */
export const parse = (text: string): unknown => JSON.parse(text, keep as never)
export const isNumber = (value: unknown): boolean => typeof value === 'number' || exact.isRawJSON?.(value) === true
export const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value) && !isNumber(value)

/** What is typed as JSON and has to be an object. Throws a Refusal that points to the field. */
export function objectOf(text: string, pointer: string): Record<string, unknown> {
  let message = 'This must be a JSON object, such as {"data": {}}.'
  try {
    const value = parse(text.trim() || '{}')
    if (isObject(value)) return value
  } catch (error) {
    message = `This is not JSON: ${(error as Error).message}`
  }
  throw new Refusal(422, 'invalid', message, [{ pointer, message }])
}
