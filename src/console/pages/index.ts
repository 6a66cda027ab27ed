import type { Page } from '../page.ts';
import { connectPage } from './connect.ts';
import { overviewPage } from './overview.ts';
import { searchPage } from './search.ts';

/** All pages except sign-in. */
export const pages: readonly Page[] = [overviewPage, searchPage, connectPage];
