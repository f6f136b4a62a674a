/** Environment variables that nobody reads. */
import t from 'tap';
import { parse } from '../../src/cli/parse.ts';

const COMMAND = ['file', '--input=state.yaml', 'to-local', 'to-userspace'];

function misspelt(env: Readonly<Record<string, string>>): unknown {
  const invocation = parse(COMMAND, env);
  return invocation.kind === 'run' ? invocation.misspelt : invocation;
}

t.test('a name that is nearly that of a flag is told, with what was meant', async (t) => {
  t.same(misspelt({ KPNG_MAX_CONECTIONS: '3' }), [
    { variable: 'KPNG_MAX_CONECTIONS', meant: 'KPNG_MAX_CONNECTIONS' },
  ]);
});

t.test('what other commands know is not, nor what is like nothing', async (t) => {
  t.same(
    misspelt({ KPNG_MAX_CONNECTIONS: '3', KPNG_WITH_SERVICE_LABELS: 'a', KPNG_TEAM: 'harbour' }),
    [],
  );
});

t.test('what Kubernetes sets in pods for a Service of the name kpng is not', async (t) => {
  t.same(
    misspelt({
      KPNG_PORT: 'tcp://10.96.0.9:80',
      KPNG_PORT_80_TCP_ADDR: '10.96.0.9',
      KPNG_SERVICE_HOST: '10.96.0.9',
      KPNG_API_SERVICE_PORT_HTTP: '80',
    }),
    [],
  );
});
