// How sources are bundled, for the browser and for the tests.
export const AS_ALWAYS = {
  bundle: true,
  format: 'esm',
  target: 'es2022',
  logLevel: 'warning',
  absWorkingDir: import.meta.dirname,
  loader: { '.json': 'text' },
  alias: { react: 'preact/compat', 'react-dom': 'preact/compat', 'react/jsx-runtime': 'preact/jsx-runtime' },
  define: { 'process.env.NODE_ENV': '"production"' },
  jsx: 'automatic',
  jsxImportSource: 'preact',
}
