import { EventEmitter } from 'node:events';
import t from 'tap';
import { watchProcess } from '../../src/cli/lifecycle.ts';
import { captureLog } from '../support/captured-log.ts';

async function setup(terminal = false) {
  const process = Object.assign(new EventEmitter(), {
    exits: [] as number[],
    exit(code: number) {
      this.exits.push(code);
    },
  });
  const stops: string[] = [];
  const { log, lines } = await captureLog();
  const end = watchProcess({ process, log, terminal, onStop: (signal) => stops.push(signal) });
  return { process, stops, lines, end };
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGBREAK']) {
  t.test(`${signal}: the first stops in order, the second ends at once`, async (t) => {
    const { process, stops, lines } = await setup();
    process.emit(signal, signal);
    t.same([stops, process.exits], [[signal], []]);
    process.emit(signal, signal);
    t.same([stops, process.exits], [[signal], [1]]);
    t.match(lines(), [{ level: 'warn', msg: /ending at once/, signal }]);
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
  t.match(lines()[0], { level: 'info', msg: /HUP changes nothing/ });
});

t.test('HUP of a terminal that is closed ends the program', async (t) => {
  const { process, stops } = await setup(true);
  process.emit('SIGHUP', 'SIGHUP');
  t.same(stops, ['SIGHUP']);
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
