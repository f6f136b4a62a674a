import { decodeGlobalOp, type GlobalOp } from '../api/global-ops.ts';
import { GlobalWatchReq } from '../api/generated/globalv1/api.ts';
import { WatchReq } from '../api/generated/localv1/api.ts';
import { decodeLocalOp, type LocalOp } from '../api/ops.ts';
import type { StreamApi } from './stream.ts';

const missing = (api: string, flag: string): string =>
  `the server does not serve the ${api} API: it is switched off there (${flag}), or the server is a kpng from before 2022-10-31`;

export const LOCAL_API: StreamApi<LocalOp> = {
  name: 'local API',
  path: '/localv1.Sets/Watch',
  unimplemented: missing('local', '--local-api'),
  encodeRequest: (nodeName) => WatchReq.encode({ nodeName }).finish(),
  decode: decodeLocalOp,
};

/** Also requests endpoints that only clients in the cluster may use; servers that do not know them send none. */
export const LOCAL_API_WITH_CLUSTER_SCOPE: StreamApi<LocalOp> = {
  ...LOCAL_API,
  encodeRequest: (nodeName) => WatchReq.encode({ nodeName, clusterScope: true }).finish(),
};

export const GLOBAL_API: StreamApi<GlobalOp> = {
  name: 'global API',
  path: '/globalv1.Sets/Watch',
  unimplemented: missing('global', '--globalv1-api'),
  encodeRequest: () => GlobalWatchReq.encode({}).finish(),
  decode: decodeGlobalOp,
};
