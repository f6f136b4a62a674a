import { plain, type Answer } from '../util/http-server.ts';

/** Answers a client that may not see a page, by its path and the header `authorization`; undefined: it may. */
export type Guard = (path: string, authorization: string) => Promise<Answer | undefined>;

/** Whether the owner of a token may see a page. Rejects when that cannot be found out. */
export type Ask = (
  token: string,
  path: string,
) => Promise<'allowed' | 'unauthenticated' | 'forbidden'>;

/** How a request for a page ended. */
export type GuardResult = Awaited<ReturnType<Ask>> | 'unavailable';

export interface GuardOptions {
  readonly ask: Ask;
  /** Pages that anybody may see: probes bring no token. */
  readonly open: ReadonlySet<string>;
  readonly onResult: (result: GuardResult) => void;
  /** Gets the reason why the cluster could not be asked. */
  readonly onFailed: (error: unknown) => void;
}

/** Serves pages to clients whose bearer token allows it. When the cluster cannot be asked, to none. */
export function guardPages({ ask, open, onResult, onFailed }: GuardOptions): Guard {
  const decide = async (path: string, authorization: string): Promise<GuardResult> => {
    const token = /^Bearer +(\S+)$/i.exec(authorization)?.[1];
    if (token === undefined) return 'unauthenticated';
    try {
      return await ask(token, path);
    } catch (error) {
      onFailed(error);
      return 'unavailable';
    }
  };
  return async (path, authorization) => {
    if (open.has(path)) return undefined;
    const result = await decide(path, authorization);
    onResult(result);
    return REFUSALS[result];
  };
}

const REFUSALS: Readonly<Record<GuardResult, Answer | undefined>> = {
  allowed: undefined,
  unauthenticated: {
    ...plain(401, 'A bearer token of the cluster is required.\n'),
    headers: { 'www-authenticate': 'Bearer' },
  },
  forbidden: plain(403, 'The token does not allow getting this page.\n'),
  unavailable: plain(503, 'The token could not be checked with the cluster; see the log.\n'),
};
