// The little of Node.js that tests use: its own types would make those of timers in src/ other ones.
declare module 'node:test' {
  export function test(name: string, run: () => void | Promise<void>): void
}
declare module 'node:assert/strict' {
  export function equal<T>(actual: T, expected: T, message?: string): void
  export function deepEqual<T>(actual: T, expected: T, message?: string): void
  export function notEqual<T>(actual: T, expected: T): void
  export function throws(run: () => unknown, expected: RegExp): void
  export function rejects(promise: Promise<unknown>, expected: RegExp): Promise<void>
}
declare const process: { env: Record<string, string | undefined> }
