import * as fc from 'fast-check';
import t from 'tap';
import { splitArgv } from '../../src/cli/argv.ts';
import { integer, text } from '../../src/cli/flags/kinds.ts';
import { flag } from '../../src/cli/flags/table.ts';

const TABLE = {
  v: flag({ kind: integer(0, 10), default: 0, help: '', group: '', short: 'v' }),
  input: flag({ kind: text('path'), default: '', help: '', group: '', short: 'i' }),
  api: flag({ kind: text('target'), default: '', help: '', group: '', aliases: ['server'] }),
};

function split(...argv: string[]) {
  return splitArgv(argv, TABLE);
}

t.test('every way to write a flag means the same', (t) => {
  const ways = [['-v=4'], ['--v=4'], ['-v', '4'], ['--v', '4'], ['-v4']];
  for (const way of ways) t.same(split(...way).flags, ['--v=4'], way.join(' '));
  for (const way of [
    ['-api=x:1'],
    ['--api=x:1'],
    ['-api', 'x:1'],
    ['--api', 'x:1'],
    ['--server=x:1'],
  ]) {
    t.same(split(...way).flags, ['--api=x:1'], way.join(' '));
  }
  for (const way of [['-i', 'f'], ['-i=f'], ['-if'], ['-input=f'], ['--input', 'f']]) {
    t.same(split(...way).flags, ['--input=f'], way.join(' '));
  }
  t.end();
});

t.test('flags may stand between the words', (t) => {
  t.same(split('-v=4', 'local', '--api', 'local', 'to-json', '-i', 'x'), {
    words: ['local', 'to-json'],
    flags: ['--v=4', '--api=local', '--input=x'],
    help: false,
  });
  t.end();
});

t.test('values keep their equals signs, dashes and emptiness', (t) => {
  t.same(split('--api=dns:///a=b').flags, ['--api=dns:///a=b']);
  t.same(split('--api=').flags, ['--api=']);
  t.same(split('--api', '').flags, ['--api=']);
  t.same(split('--api', '-').flags, ['--api=-']);
  t.same(split('--v', '-3').flags, ['--v=-3'], 'a negative number is a value, and a wrong one');
  t.end();
});

t.test('a flag whose value is missing does not swallow the next flag', (t) => {
  t.same(split('--api', '--v=4').flags, ['--api', '--v=4']);
  t.same(split('--api').flags, ['--api']);
  t.end();
});

t.test('what no table knows is passed on as it is', (t) => {
  t.same(split('--nonsense', 'local', '-x'), {
    words: ['local'],
    flags: ['--nonsense', '-x'],
    help: false,
  });
  t.end();
});

t.test('after two dashes everything is a word', (t) => {
  t.same(split('local', '--', '--api', '-v'), {
    words: ['local', '--api', '-v'],
    flags: [],
    help: false,
  });
  t.end();
});

t.test('help is asked for in three ways, anywhere', (t) => {
  for (const way of ['-h', '--help', '-help']) {
    t.equal(split('local', way, 'to-json').help, true, way);
  }
  t.equal(split('local', '--', '--help').help, false);
  t.end();
});

t.test('no argument gets lost, and none crashes it', (t) => {
  const argument = fc.oneof(
    fc.constantFrom(
      '-v',
      '--v',
      '-v=4',
      '-api',
      '--api=x',
      '-i',
      '--',
      '-',
      '',
      '--x',
      'local',
      '3',
    ),
    fc.string({ maxLength: 6 }),
  );
  const outcome = fc.check(
    fc.property(fc.array(argument, { maxLength: 8 }), (argv) => {
      const { words, flags, help } = splitArgv(argv, TABLE);
      const values = flags.filter((each) => /^--(v|input|api)=/.test(each)).length;
      const dashes = argv.includes('--') ? 1 : 0;
      const helps = argv.filter((arg) => ['-h', '--help', '-help'].includes(arg)).length;
      const kept = words.length + flags.length + (help ? helps : 0) + dashes;
      return kept <= argv.length && kept + values >= argv.length;
    }),
    { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false },
  );
  t.notOk(outcome.failed, JSON.stringify(outcome.counterexample));
  t.end();
});
