import * as fc from 'fast-check';
import t from 'tap';
import { commandLine } from '../../src/service/command-line.ts';

/** Takes a command line apart as the C library of Windows does. */
function takeApart(line: string): string[] {
  const args: string[] = [];
  let at = 0;
  while (at < line.length) {
    while (line[at] === ' ' || line[at] === '\t') at += 1;
    if (at >= line.length) break;
    let arg = '';
    let quoted = false;
    for (; at < line.length && (quoted || !/[ \t]/.test(line[at] ?? '')); at += 1) {
      let slashes = 0;
      while (line[at] === '\\') [slashes, at] = [slashes + 1, at + 1];
      if (line[at] !== '"') {
        arg += '\\'.repeat(slashes);
        if (at < line.length && (quoted || !/[ \t]/.test(line[at] ?? ''))) arg += line[at];
        else at -= 1;
        continue;
      }
      arg += '\\'.repeat(slashes >> 1);
      if (slashes % 2 === 1) arg += '"';
      else quoted = !quoted;
    }
    args.push(arg);
  }
  return args;
}

t.test('arguments keep their blanks, quotes and backslashes', async (t) => {
  const cases: [string[], string][] = [
    [['kube', 'to-api'], 'kube to-api'],
    [
      ['--kubeconfig', String.raw`C:\Program Files\k\config`],
      String.raw`--kubeconfig "C:\Program Files\k\config"`,
    ],
    [[''], '""'],
    [[String.raw`C:\a b` + '\\'], String.raw`"C:\a b\\"`],
    [['say "hi"'], String.raw`"say \"hi\""`],
    [['%PATH%', 'a&b|c>d'], '%PATH% a&b|c>d'],
  ];
  for (const [args, line] of cases) {
    t.equal(commandLine(args), line);
    t.same(takeApart(line), args, line);
  }
});

t.test('any arguments survive', async () => {
  const arg = fc.string({
    unit: fc.constantFrom('a', ' ', '"', '\\', '=', '\t', 'ü'),
    maxLength: 12,
  });
  fc.assert(
    fc.property(fc.array(arg, { maxLength: 5 }), (args) => {
      const found = takeApart(commandLine(args));
      return found.length === args.length && found.every((each, index) => each === args[index]);
    }),
    { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false },
  );
});
