// JSON whose numbers keep the digits that they were written with, as the service keeps them.
type Source = { source?: string }
const exact = JSON as unknown as { rawJSON?: (text: string) => object; isRawJSON?: (value: unknown) => boolean }

const keep = (_name: string, value: unknown, context?: Source) =>
  (typeof value === 'number' && context?.source !== undefined && String(value) !== context.source && exact.rawJSON ? exact.rawJSON(context.source) : value)

/** As JSON.parse; a number that JavaScript would write otherwise becomes an object that JSON.stringify writes as it was. */
export const parse = (text: string): unknown => JSON.parse(text, keep as never)
export const isNumber = (value: unknown): boolean => typeof value === 'number' || exact.isRawJSON?.(value) === true
