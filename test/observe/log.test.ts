import t from 'tap';
import { KpngError } from '../../src/errors.ts';
import { captureLog } from '../support/captured-log.ts';

t.test('lines are JSON objects with a level, a time, a message and keys', async (t) => {
  const { log, raw, lines } = await captureLog(2);
  log.error('it failed', { service: 'a/b:c' });
  log.warn('careful');
  log.info('hello', { n: 1 });
  log.v(2, 'detail', { x: [1, 2] });
  log.v(3, 'above the verbosity');
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
  t.match(lines(), [
    { level: 'error', msg: 'it failed', service: 'a/b:c', time },
    { level: 'warn', msg: 'careful' },
    { level: 'info', msg: 'hello', n: 1 },
    { level: 'info', msg: 'detail', v: 2, x: [1, 2] },
  ]);
  t.strictSame(Object.keys(lines()[1] ?? {}).sort(), ['level', 'msg', 'time'], 'and nothing else');
  t.equal(lines().length, 4);
  t.ok(raw.every((line) => line.endsWith('\n') && line.indexOf('\n') === line.length - 1));
});

t.test('an error is logged with its code, causes and service port', async (t) => {
  const { log, lines } = await captureLog();
  const code = 'ECONNREFUSED';
  const system = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code });
  const cause = new Error('no connection', { cause: system });
  const more = { cause, servicePort: 'ns/web:http' };
  const inner = new Error('14 UNAVAILABLE: refused');
  const middle = new Error('UNAVAILABLE: refused', { cause: inner });
  const ping: Error = new Error('ping');
  ping.cause = new Error('pong', { cause: ping });
  for (const [keys, expected] of [
    [
      { err: new KpngError('KPNG_SOURCE_LOST', 'the server is unreachable', more) },
      {
        err: 'the server is unreachable',
        code: 'KPNG_SOURCE_LOST',
        cause: 'no connection: connect ECONNREFUSED 127.0.0.1:1',
        servicePortName: 'ns/web:http',
      },
    ],
    [{ err: system }, { err: system.message, code }],
    [
      { err: 'just words', code: 'KEPT' },
      { err: 'just words', code: 'KEPT' },
    ],
    [{ err: new RangeError('') }, { err: 'RangeError' }],
    // Repeated causes are left out, and circular ones end.
    [{ err: new Error('x: UNAVAILABLE: refused', { cause: middle }) }, { cause: undefined }],
    [{ err: ping }, { cause: 'pong: ping: pong: ping: pong' }],
  ] as const) {
    log.error('failed', keys);
    t.match(lines().at(-1), expected);
  }
});

t.test('text is for people: time, level, message, keys with quotes', async (t) => {
  const { log, raw } = await captureLog(4, 'text');
  log.v(4, 'NextEndpoint for service', { servicePortName: 'default/web:http', endpoints: 3 });
  log.error('Dial failed', { err: new Error('refused') });
  t.match(
    raw[0],
    /^\[\d\d:\d\d:\d\d\.\d{3}\] INFO: NextEndpoint for service servicePortName="default\/web:http" endpoints=3\n$/,
  );
  t.match(raw[1], /ERROR: Dial failed err="refused"\n$/);
});

t.test('names cannot break a line or control the terminal', async (t) => {
  const evil = 'a\nINFO: all is well\r\u001b[2J\u009b31m\u2028\u202e"quoted"';
  for (const format of ['text', 'json'] as const) {
    const { log, raw } = await captureLog(0, format);
    log.info(evil, { [evil]: evil, list: [evil] });
    t.equal(raw.length, 1);
    const line = raw[0] ?? '';
    t.equal(line.indexOf('\n'), line.length - 1, `${format}: one line`);
    t.notMatch(line.trimEnd(), /[\p{Cc}\p{Cf}\u2028\u2029]/u, `${format}: no controls`);
    if (format === 'json') t.match(JSON.parse(line), { msg: evil, [evil]: evil, list: [evil] });
  }
  const { log, raw } = await captureLog(0, 'text');
  log.info('x', { name: evil });
  t.notMatch(raw[0], /[\u0080-\u009f\u2028\u202e]/);
  t.match(raw[0], /\\u202e\\"quoted\\"/);
});

t.test('a stack is shown on lines of its own, in text only', async (t) => {
  const stack = 'Error: x\n    at one (file.ts:1:1)\n    at two (file.ts:2:2)';
  const text = await captureLog(0, 'text');
  text.log.error('Crashed', { stack });
  t.match(text.raw.join(''), /Crashed\n {4}at one \(file\.ts:1:1\)\n {4}at two/);
  const json = await captureLog();
  json.log.error('Crashed', { stack });
  t.equal(json.lines()[0]?.['stack'], stack);
});
