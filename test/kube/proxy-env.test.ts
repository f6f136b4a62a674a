import t from 'tap';
import { proxyFromEnvironment } from '../../src/kube/proxy-env.ts';

const PROXY = 'http://proxy.example:3128';

function proxyFor(server: string, env: Record<string, string>): string | undefined {
  return proxyFromEnvironment(new URL(server), env);
}

t.test('the proxy of the scheme, in capitals or not', (t) => {
  t.equal(proxyFor('https://api.example:6443', {}), undefined);
  t.equal(proxyFor('https://api.example:6443', { HTTPS_PROXY: PROXY }), PROXY);
  t.equal(proxyFor('https://api.example:6443', { https_proxy: PROXY }), PROXY);
  t.equal(proxyFor('https://api.example:6443', { HTTP_PROXY: PROXY }), undefined);
  t.equal(proxyFor('http://api.example', { http_proxy: PROXY }), PROXY);
  t.equal(proxyFor('https://api.example', { HTTPS_PROXY: 'proxy.example:3128' }), PROXY);
  t.end();
});

t.test('loopback needs none', (t) => {
  for (const host of ['localhost', '127.0.0.1', '127.8.8.8', '[::1]']) {
    t.equal(proxyFor(`https://${host}:6443`, { HTTPS_PROXY: PROXY }), undefined, host);
  }
  t.end();
});

t.test('what NO_PROXY lists needs none', (t) => {
  const cases: [host: string, noProxy: string, exempt: boolean][] = [
    ['api.example', 'api.example', true],
    ['API.example', 'api.EXAMPLE', true],
    ['api.example', 'example', true],
    ['api.example', '.example', true],
    ['example', '.example', false],
    ['api.example', '*.example', true],
    ['apiexample', 'example', false],
    ['api.example', 'other, api.example', true],
    ['api.example', '*', true],
    ['api.example', 'api.example:6443', true],
    ['api.example', 'api.example:443', false],
    ['10.96.0.1', '10.96.0.0/12', true],
    ['10.96.0.1', '10.97.0.0/16', false],
    ['10.96.0.1', '10.96.0.1', true],
    ['10.96.0.1', '10.96.0.0/99', false],
    ['api.example', '10.0.0.0/8', false],
    ['[fd00::1]', 'fd00::/8', true],
    ['[fd00::1]', 'fd00::1', true],
    ['[fd00::1]', '10.0.0.0/8', false],
    ['api.example', ' ,, ', false],
  ];
  for (const [host, noProxy, exempt] of cases) {
    const proxy = proxyFor(`https://${host}:6443`, { HTTPS_PROXY: PROXY, NO_PROXY: noProxy });
    t.equal(proxy === undefined, exempt, `${host} with ${noProxy}`);
  }
  t.end();
});
