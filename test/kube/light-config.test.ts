/** KubeConfig without the models of the whole Kubernetes API, which are most of what it would load. */
import { registerHooks } from 'node:module';
import t from 'tap';
import { loadKubeConfigClass } from '../../src/kube/light-config.ts';

const CLUSTER = { name: 'east', server: 'https://east.example', skipTLSVerify: false };

t.test('what only API clients need is not loaded', async (t) => {
  const loaded: string[] = [];
  const hooks = registerHooks({
    load(url, context, next) {
      loaded.push(url);
      return next(url, context);
    },
  });
  const KubeConfig = await loadKubeConfigClass();
  hooks.deregister();
  const ofPackage = loaded.filter((url) => url.includes('/@kubernetes/client-node/'));
  t.ok(ofPackage.length >= 5, `${ofPackage.length} modules of the package`);
  t.strictSame(
    loaded.filter((url) => /\/(?:gen\/(?:models|apis)|undici)\//.test(url)),
    [],
  );
  t.equal(await loadKubeConfigClass(), KubeConfig, 'it is loaded once');

  const config = new KubeConfig();
  config.loadFromClusterAndUser(CLUSTER, { name: 'kpng', token: 'abc' });
  const options: { headers?: object } = {};
  await config.applyToHTTPSOptions(options);
  t.match(options.headers, { Authorization: 'Bearer abc' }, 'logging in works');
});

t.test('the class of somebody else in the same program is whole', async (t) => {
  const ours = await loadKubeConfigClass();
  const { KubeConfig, CoreV1Api } = await import('@kubernetes/client-node');
  t.not(KubeConfig, ours);
  const theirs = new KubeConfig();
  theirs.loadFromClusterAndUser(CLUSTER, { name: 'kpng' });
  t.ok(theirs.makeApiClient(CoreV1Api) instanceof CoreV1Api);
  const config = new ours();
  config.loadFromClusterAndUser(CLUSTER, { name: 'kpng' });
  t.throws(() => config.makeApiClient(CoreV1Api), { message: /makes no API clients/ });
});
