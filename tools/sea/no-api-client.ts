/** Stands for what KubeConfig would make API clients with: see bundle.ts. */

function none(): never {
  throw new Error('this copy of KubeConfig makes no API clients');
}

/** What it calls, and what it makes objects of: both end here. */
export {
  none as createConfiguration,
  none as ServerConfiguration,
  none as Agent,
  none as ProxyAgent,
};
