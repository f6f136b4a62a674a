/** The definition for WinSW, and the command line in it. */
import t from 'tap';
import { commandLine, type ServiceSpec } from '../../src/service/spec.ts';
import { winswDefinition } from '../../src/service/winsw.ts';
import { SERVICE } from '../support/fake-nssm.ts';

const SPEC: ServiceSpec = {
  ...SERVICE,
  displayName: 'The "odd" proxy & <more>',
  args: ['--name', 'a<b & "c"'],
  environment: [...SERVICE.environment, 'SAID="a"\t<b>', 'E='],
  dependsOn: ['kpng', 'Tcpip'],
};

t.test('the definition has every value', async (t) => {
  t.equal(
    winswDefinition(SPEC),
    [
      '<service>',
      '  <id>winuserspace</id>',
      '  <name>The &quot;odd&quot; proxy &amp; &lt;more&gt;</name>',
      '  <description>Proxies &amp; balances</description>',
      String.raw`  <executable>C:\Program Files\kpng\winuserspace.exe</executable>`,
      String.raw`  <arguments>--name &quot;a&lt;b &amp; \&quot;c\&quot;&quot;</arguments>`,
      String.raw`  <workingdirectory>C:\Program Files\kpng</workingdirectory>`,
      '  <startmode>Automatic</startmode>',
      '  <delayedAutoStart>true</delayedAutoStart>',
      '  <depend>kpng</depend>',
      '  <depend>Tcpip</depend>',
      '  <env name="INTERFACE_TO_ADD_SERVICE_IP" value="vEthernet (nat)"/>',
      '  <env name="A" value="b=c"/>',
      '  <env name="SAID" value="&quot;a&quot;&#9;&lt;b&gt;"/>',
      '  <env name="E" value=""/>',
      String.raw`  <logpath>C:\ProgramData\kpng-userspace\logs</logpath>`,
      '  <log mode="roll-by-size">',
      '    <sizeThreshold>1024</sizeThreshold>',
      '    <keepFiles>8</keepFiles>',
      '  </log>',
      '  <onfailure action="restart" delay="2000 ms"/>',
      '  <onfailure action="restart" delay="10000 ms"/>',
      '  <onfailure action="restart" delay="60000 ms"/>',
      '  <resetfailure>1 hour</resetfailure>',
      '  <stoptimeout>15000 ms</stoptimeout>',
      '</service>',
      '',
    ].join('\r\n'),
  );
});

t.test('start modes, and values within the bounds of WinSW', async (t) => {
  const cases: [Partial<ServiceSpec>, RegExp][] = [
    [{ start: 'auto' }, /<startmode>Automatic<\/startmode>\r\n {2}<depend>/],
    [{ start: 'demand' }, /<startmode>Manual<\/startmode>\r\n {2}<depend>/],
    [{ restartDelayMs: 30_000 }, /(?:delay="30000 ms"[^]*){2}delay="60000 ms"/],
    [{ logBytes: 2 ** 40 }, /<sizeThreshold>2097151</],
    [{ logBytes: 1 }, /<sizeThreshold>1</],
  ];
  for (const [spec, expected] of cases) t.match(winswDefinition({ ...SPEC, ...spec }), expected);
  for (const control of ['\u0000', '\u001B', '\uFFFF']) {
    t.throws(() => winswDefinition({ ...SPEC, args: [control] }), {
      code: 'KPNG_USAGE',
      message: /WinSW cannot have the character U\+[0-9A-F]{4}/,
    });
  }
});

t.test('arguments keep their blanks, quotes and backslashes', async (t) => {
  const cases: [string[], string][] = [
    [['kube', 'to-api'], 'kube to-api'],
    [
      ['--kubeconfig', String.raw`C:\Program Files\k\config`],
      String.raw`--kubeconfig "C:\Program Files\k\config"`,
    ],
    [[''], '""'],
    [[String.raw`C:\a b` + '\\'], String.raw`"C:\a b\\"`],
    [['say "hi"', 'a\tb', String.raw`a\b`], String.raw`"say \"hi\"" "a	b" a\b`],
    [[String.raw`\"`, String.raw`a\\"b c\d`], String.raw`"\\\"" "a\\\\\"b c\d"`],
    [['%PATH%', 'a&b|c>d'], '%PATH% a&b|c>d'],
  ];
  for (const [args, line] of cases) {
    t.equal(commandLine(args), line);
  }
});
