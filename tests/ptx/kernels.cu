// SPDX-License-Identifier: MIT
// Kernels that tests/unit/exec_*.cpp run and compare with the CPU.
#include <cstdio>
#include <cooperative_groups.h>
#include <cassert>
namespace cg=cooperative_groups;
extern "C" {
__global__ void vadd(const float*a,const float*b,float*c,int n){int i=blockIdx.x*blockDim.x+threadIdx.x; if(i<n)c[i]=a[i]+b[i];}
__global__ void saxpy(float a,const float*x,float*y,int n){for(int i=blockIdx.x*blockDim.x+threadIdx.x;i<n;i+=gridDim.x*blockDim.x)y[i]=a*x[i]+y[i];}
__global__ void stencil3d(const float*__restrict__ in,float*__restrict__ out,int nx,int ny,int nz){
 int x=blockIdx.x*blockDim.x+threadIdx.x,y=blockIdx.y*blockDim.y+threadIdx.y;
 if(x<1||y<1||x>=nx-1||y>=ny-1)return;
 for(int z=1;z<nz-1;z++){size_t i=((size_t)z*ny+y)*nx+x; out[i]=0.5f*in[i]+(in[i-1]+in[i+1]+in[i-nx]+in[i+nx]+in[i-(size_t)nx*ny]+in[i+(size_t)nx*ny])/12.f;}}
__global__ void reduce(const float*in,float*out,int n){extern __shared__ float s[];int t=threadIdx.x;float v=0;
 for(int i=blockIdx.x*blockDim.x+t;i<n;i+=blockDim.x*gridDim.x)v+=in[i]; s[t]=v;__syncthreads();
 for(int k=blockDim.x/2;k>0;k>>=1){if(t<k)s[t]+=s[t+k];__syncthreads();} if(t==0)out[blockIdx.x]=s[0];}
__global__ void matmul(const float*A,const float*B,float*C,int n){__shared__ float a[16][16],b[16][16];int tx=threadIdx.x,ty=threadIdx.y;
 int row=blockIdx.y*16+ty,col=blockIdx.x*16+tx;float acc=0;for(int t=0;t<n;t+=16){a[ty][tx]=A[row*n+t+tx];b[ty][tx]=B[(t+ty)*n+col];__syncthreads();
 for(int k=0;k<16;k++)acc+=a[ty][k]*b[k][tx];__syncthreads();}C[row*n+col]=acc;}
__global__ void hist(const unsigned char*d,unsigned*h,int n){__shared__ unsigned s[256];for(int i=threadIdx.x;i<256;i+=blockDim.x)s[i]=0;__syncthreads();
 for(int i=blockIdx.x*blockDim.x+threadIdx.x;i<n;i+=blockDim.x*gridDim.x)atomicAdd(&s[d[i]],1);__syncthreads();for(int i=threadIdx.x;i<256;i+=blockDim.x)atomicAdd(&h[i],s[i]);}
struct Node{Node*next;int v;};
__global__ void chase(Node**heads,int*out,int n){int i=blockIdx.x*blockDim.x+threadIdx.x;if(i>=n)return;int s=0;for(Node*p=heads[i];p;p=p->next)s=s*31+p->v;out[i]=s;}
__device__ __noinline__ double f(double x,int k){return k<=0?x:sqrt(x)+f(x/2,k-1)*exp(-x)+sin(x);}
__global__ void dbl(const double*a,double*o,int n){int i=blockIdx.x*blockDim.x+threadIdx.x;if(i<n)o[i]=f(a[i],i%5);}
__global__ void pr(int x){printf("hello %d %f %s %d\n",x,1.5*threadIdx.x,"str",threadIdx.x);}
__global__ void as(int x){assert(x==threadIdx.x);}
__device__ int lock;__device__ int counter=5; __constant__ float coef[4]={1,2,3,4}; __device__ float* gp=(float*)&counter;
__global__ void spin(){while(atomicCAS(&lock,0,1)!=0);__threadfence();counter=counter+1;__threadfence();atomicExch(&lock,0);}
__global__ void gridsync(int*a,int n){cg::grid_group g=cg::this_grid();int r=g.thread_rank();for(int k=0;k<4;k++){if(r<n)a[((k+1)&1)*n+r]=a[(k&1)*n+(r+1)%n]+1;g.sync();}}
__global__ void warp(int*o){auto w=cg::tiled_partition<32>(cg::this_thread_block());int v=threadIdx.x;for(int k=16;k;k>>=1)v+=w.shfl_down(v,k);unsigned b=__ballot_sync(~0u,v&1);o[threadIdx.x]=v+b+__popc(b)+__match_any_sync(~0u,v&3);}
typedef int(*fp)(int);__device__ int f1(int x){return x+1;}__device__ int f2(int x){return x*2;}__device__ fp tab[2]={f1,f2};
__global__ void indirect(int*o){o[threadIdx.x]=tab[threadIdx.x&1](threadIdx.x);}
__global__ void sw(int*o){int t=threadIdx.x;int r;switch(t){case 0:r=t*3;break;case 1:r=o[3];break;case 2:r=o[0]/(t+1);break;case 3:r=o[5]%7;break;case 4:r=1;break;case 5:r=o[7]^3;break;case 6:r=o[9]*o[9];break;default:r=9;}o[t]=r;}
__global__ void locals(int*o,int k){int a[32];for(int i=0;i<32;i++)a[i]=i*k;o[threadIdx.x]=a[(threadIdx.x*7+k)&31];}
}
