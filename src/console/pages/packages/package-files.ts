/** Files that pages of packages show or lead to, each with the operation of `/v1` that has it. */
export const packageFiles = [
  { path: '/packages/:id/:version/file', operation: 'getPackageFile' },
  { path: '/packages/:id/:version/icon', operation: 'getPackageIcon' },
] as const;
