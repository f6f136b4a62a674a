import { EventEmitter } from 'node:events';
import t from 'tap';
import {
  CONSOLE_CLOSED_MS,
  meaningOfHangUp,
  watchProcess,
  type HangUp,
  type StopReason,
} from '../../src/cli/lifecycle.ts';
import { captureLog } from '../support/captured-log.ts';

async function setup(hangUp: HangUp = 'read-again') {
  const process = Object.assign(new EventEmitter(), {
    exits: [] as number[],
    exit(code: number) {
      this.exits.push(code);
    },
  });
  const stops: StopReason[] = [];
  const { log, lines } = await captureLog();
  const end = watchProcess({ process, log, hangUp, onStop: (reason) => stops.push(reason) });
  return { process, stops, lines, end };
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGBREAK']) {
  t.test(`${signal}: the first stops in order, the second ends at once`, async (t) => {
    const { process, stops, lines } = await setup();
    process.emit(signal, signal);
    t.same(
      [stops, process.exits],
      [[{ told: { signal } }], []],
      'with all the time that flags say',
    );
    process.emit(signal, signal);
    t.same([stops.length, process.exits], [1, [1]]);
    t.match(lines(), [{ level: 'warn', msg: /exiting at once/, signal }]);
  });
}

t.test('two different signals count as two', async (t) => {
  const { process } = await setup();
  process.emit('SIGTERM', 'SIGTERM');
  process.emit('SIGINT', 'SIGINT');
  t.same(process.exits, [1]);
});

t.test('HUP changes nothing for a daemon without a configuration file', async (t) => {
  const { process, stops, lines } = await setup();
  process.emit('SIGHUP', 'SIGHUP');
  process.emit('SIGHUP', 'SIGHUP');
  t.same([stops, process.exits], [[], []]);
  t.match(lines()[0], { level: 'info', msg: /SIGHUP ignored/ });
});

t.test('HUP of a terminal that is closed ends the program', async (t) => {
  const { process, stops } = await setup('terminal-closed');
  process.emit('SIGHUP', 'SIGHUP');
  t.same(stops, [{ told: { signal: 'SIGHUP' } }]);
});

t.test('HUP of a console that is closed ends it before Windows does', async (t) => {
  const { process, stops } = await setup('console-closed');
  process.emit('SIGHUP', 'SIGHUP');
  t.same(stops, [{ told: { signal: 'SIGHUP' }, withinMs: CONSOLE_CLOSED_MS }]);
  t.ok(CONSOLE_CLOSED_MS < 5000, 'Windows waits for five seconds');
});

t.test('on Windows HUP never means to read the configuration again', async (t) => {
  t.equal(meaningOfHangUp('win32', false), 'console-closed', 'a service, or output into a pipe');
  t.equal(meaningOfHangUp('win32', true), 'console-closed');
  t.equal(meaningOfHangUp('linux', true), 'terminal-closed');
  t.equal(meaningOfHangUp('linux', false), 'read-again');
});

t.test('what nobody caught is logged with its stack and ends the program with 1', async (t) => {
  for (const event of ['uncaughtException', 'unhandledRejection']) {
    const { process, lines } = await setup();
    process.emit(event, Object.assign(new Error('a mistake'), { code: 'KPNG_X' }));
    t.same(process.exits, [1], event);
    t.match(lines(), [
      { level: 'error', err: 'a mistake', code: 'KPNG_X', stack: /lifecycle\.test/ },
    ]);
  }
  const { process, lines } = await setup();
  process.emit('unhandledRejection', 'just text');
  t.match(lines(), [{ level: 'error', err: 'just text' }]);
});

t.test('when told to, it listens to nothing any more', async (t) => {
  const { process, end } = await setup();
  end();
  t.same(process.eventNames(), []);
});
