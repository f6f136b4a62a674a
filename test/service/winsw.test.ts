/** The definition for WinSW, read as WinSW reads it. */
import * as fc from 'fast-check';
import t from 'tap';
import { commandLine } from '../../src/service/command-line.ts';
import type { ServiceSpec } from '../../src/service/spec.ts';
import { winswDefinition } from '../../src/service/winsw.ts';
import { readWinsw } from '../support/winsw.ts';
import { parseXml } from '../support/xml.ts';

const SPEC: ServiceSpec = {
  name: 'winuserspace',
  displayName: 'The "odd" proxy & <more>',
  description: 'Proxies & balances',
  program: String.raw`C:\Program Files\kpng\winuserspace.exe`,
  args: ['-v=4', '--tls-ca', String.raw`C:\Program Files\kpng\ca.pem`, 'say "hi"'],
  directory: String.raw`C:\Program Files\kpng`,
  logDirectory: String.raw`C:\ProgramData\kpng-userspace\logs`,
  logBytes: 10 * 1024 * 1024,
  environment: ['INTERFACE_TO_ADD_SERVICE_IP=vEthernet (nat)', 'A=b=c', 'SAID="a" & \t<b>', 'E='],
  start: 'delayed-auto',
  dependsOn: ['kpng', 'Tcpip'],
  restartDelayMs: 2000,
  stopTimeoutMs: 15_000,
};

t.test('WinSW reads every value as intended', async (t) => {
  t.strictSame(readWinsw(winswDefinition(SPEC)), {
    id: 'winuserspace',
    name: 'The "odd" proxy & <more>',
    description: 'Proxies & balances',
    executable: SPEC.program,
    arguments: String.raw`-v=4 --tls-ca "C:\Program Files\kpng\ca.pem" "say \"hi\""`,
    workingDirectory: SPEC.directory,
    startMode: 'Automatic',
    delayed: true,
    dependencies: ['kpng', 'Tcpip'],
    environment: {
      INTERFACE_TO_ADD_SERVICE_IP: 'vEthernet (nat)',
      A: 'b=c',
      SAID: '"a" & \t<b>',
      E: '',
    },
    log: { directory: SPEC.logDirectory, mode: 'roll-by-size', bytes: 10_485_760, files: 8 },
    failures: [2000, 10_000, 60_000].map((delayMs) => ({ action: 'restart', delayMs })),
    resetFailureMs: 3_600_000,
    stopTimeoutMs: 15_000,
  });
});

t.test('each start mode exists in WinSW', async (t) => {
  const start = (mode: ServiceSpec['start']) => {
    const { startMode, delayed } = readWinsw(winswDefinition({ ...SPEC, start: mode }));
    return [startMode, delayed];
  };
  t.same(start('delayed-auto'), ['Automatic', true]);
  t.same(start('auto'), ['Automatic', false]);
  t.same(start('demand'), ['Manual', false]);
});

t.test('waits between restarts never get shorter; sizes stay in bounds', async (t) => {
  const slow = readWinsw(winswDefinition({ ...SPEC, restartDelayMs: 30_000, logBytes: 2 ** 40 }));
  t.same(
    slow.failures.map(({ delayMs }) => delayMs),
    [30_000, 30_000, 60_000],
  );
  t.equal(slow.log.bytes, 2 ** 31 - 1024);
  t.equal(readWinsw(winswDefinition({ ...SPEC, logBytes: 1 })).log.bytes, 1024);
});

t.test('any text survives, or is refused', async (t) => {
  const unit = fc.constantFrom(
    'a',
    ' ',
    '"',
    "'",
    '<',
    '>',
    '&',
    ']',
    ';',
    '\t',
    '\n',
    '\r',
    'ü',
    '😀',
  );
  const word = fc.string({ unit, maxLength: 12 });
  fc.assert(
    fc.property(word, word, (value, name) => {
      const spec = { ...SPEC, displayName: `x${name}`, environment: [`A=${value}`] };
      const read = readWinsw(winswDefinition(spec));
      return read.name === `x${name}` && read.environment['A'] === value;
    }),
    { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false },
  );
  for (const control of ['\u0000', '\u001B', '\uFFFF']) {
    t.throws(() => winswDefinition({ ...SPEC, args: [control] }), {
      code: 'KPNG_USAGE',
      message: /WinSW cannot have the character U\+[0-9A-F]{4}/,
    });
  }
});

t.test('the XML reader of this test detects errors', async (t) => {
  const right = winswDefinition(SPEC);
  const cases: [from: string | RegExp, to: string, RegExp][] = [
    ['<startmode>Automatic', '<startmode>Delayed', /none of Boot/],
    ['delayedAutoStart', 'delayedautostart', /expected|knows no/],
    ['<delayedAutoStart>true', '<delayedAutoStart>yes', /not true/],
    ['<stoptimeout>15000 ms', '<stoptimeout>15 s', /no time/],
    ['delay="2000 ms"', 'wait="2000 ms"', /has no wait/],
    ['action="restart"', 'action="start"', /none of restart/],
    ['</sizeThreshold>', 'Ki</sizeThreshold>', /32 bits/],
    ['<keepFiles>8</keepFiles>', '<keep>8</keep>', /has no <keep>/],
    ['<id>winuserspace</id>', '', /<id> is missing/],
    ['<id>', '<id>x</id><id>', /2 times/],
    ['&amp;', '&', /no reference/],
    [/<\/service>\s*$/, '', /expected/],
  ];
  for (const [from, to, message] of cases) {
    const wrong = right.replace(from, to);
    t.not(wrong, right);
    t.throws(() => readWinsw(wrong), { message }, String(from));
  }
  t.equal(parseXml('<a b="x\ty&#9;z">  <c> d </c>\r\n</a>').attributes.get('b'), 'x y\tz');
});

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
