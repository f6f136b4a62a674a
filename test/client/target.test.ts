import t from 'tap';
import { parseTarget } from '../../src/client/target.ts';
import { KpngError } from '../../src/errors.ts';

t.test('targets as kpng users write them', async (t) => {
  for (const [text, uri, host] of [
    ['127.0.0.1:12090', 'dns:127.0.0.1:12090', '127.0.0.1'],
    ['kpng.kube-system.svc:12090', 'dns:kpng.kube-system.svc:12090', 'kpng.kube-system.svc'],
    ['localhost:1', 'dns:localhost:1', 'localhost'],
    ['node_1.lan.:65535', 'dns:node_1.lan.:65535', 'node_1.lan'],
    ['[::1]:12090', 'dns:[::1]:12090', '::1'],
    ['dns:kpng:12090', 'dns:kpng:12090', 'kpng'],
    ['dns:///kpng:12090', 'dns:kpng:12090', 'kpng'],
    ['dns:///[fd00::1]:12090', 'dns:[fd00::1]:12090', 'fd00::1'],
    ['dns:12090', 'dns:dns:12090', 'dns'],
    ['unix:kpng.sock', 'unix:kpng.sock', 'localhost'],
    ['unix:./run/kpng.sock', 'unix:./run/kpng.sock', 'localhost'],
    ['unix:///k8s/proxy.sock', 'unix:/k8s/proxy.sock', 'localhost'],
    ['unix:/k8s/proxy.sock', 'unix:/k8s/proxy.sock', 'localhost'],
  ] as const) {
    t.strictSame(parseTarget(text), { uri, host, text });
  }
});

t.test('anything else is a usage error that names flag and value', async (t) => {
  for (const [text, problem] of [
    ['', /expected a target/],
    ['127.0.0.1', /port is missing/],
    ['kpng', /port is missing/],
    ['dns:///kpng', /port is missing/],
    [':12090', /host is missing/],
    ['kpng:', /"" is not a port/],
    ['kpng:0', /"0" is not a port/],
    ['kpng:65536', /not a port/],
    ['kpng:http', /"http" is not a port/],
    ['kpng:80:81', /expected host:port/],
    ['::1', /brackets/],
    ['::1:12090', /brackets/],
    ['[::1]', /port is missing/],
    ['[::1', /expected host:port/],
    ['[kpng]:1', /\[kpng\] is not an IPv6 address/],
    ['a b:1', /"a b" is not a host name/],
    ['1.2.3:1', /not a host name/],
    ['1.2.3.4.5:1', /not a host name/],
    ['a..b:1', /not a host name/],
    [`${'a'.repeat(300)}:1`, /not a host name/],
    ['dns://8.8.8.8/kpng:1', /DNS server cannot be chosen/],
    ['multi:///a:1,b:2', /several targets are not supported/],
    ['tcp://127.0.0.1:12090', /scheme "tcp" is not known/],
    ['https://kpng:12090', /scheme "https" is not known/],
    ['xds:///kpng', /scheme "xds"/],
    ['unix:', /path of the socket is missing/],
    ['unix:///', /path of the socket is missing/],
    ['unix://relative', /write unix:relative/],
    ['unix:a\0b', /zero byte/],
    [`unix:///${'a'.repeat(200)}`, /at most 107 bytes/],
    ['127.0.0.1:12090\n', /not a port/],
  ] as const) {
    const error = caught(() => parseTarget(text, '--my-api'));
    t.equal(error.code, 'KPNG_USAGE', JSON.stringify(text));
    t.match(error.message, problem);
    t.ok(error.message.startsWith(`--my-api ${JSON.stringify(text)}: `), error.message);
  }
});

function caught(act: () => unknown): KpngError {
  try {
    act();
  } catch (error) {
    if (error instanceof KpngError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}
